// What every kernel of `gated_delta` has to pass (state_conformance.h), for odd sizes.
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {
namespace {

struct Sizes {
  int64_t heads, groups, keys, values;
  bool key_decays = keys % 8 == 0;  // a decay for each key
};

}  // namespace

void CheckGatedDeltaConformance(const OpDefinition& op, const device::Capabilities& caps) {
  std::vector<Sizes> sizes = {{1, 1, 1, 1}, {6, 2, 5, 7},  {4, 4, 16, 32},  {3, 1, 33, 19},
                              {6, 3, 8, 5}, {2, 1, 24, 50}, {1, 1, 132, 20}, {1, 1, 136, 5}};
  if (caps.kind == device::DeviceKind::kGpu) {
    // Tiles of tensor cores, and more heads than a small GPU runs at a time.
    sizes.insert(sizes.end(), {{4, 2, 16, 24, false},
                               {1, 1, 128, 40, false},
                               {6, 3, 32, 35, false},
                               {10, 5, 8, 6, false}});
  }
  int by_group = 0;
  for (const Sizes& s : sizes) {
    conformance::StateCase c{.op = op};
    c.AddRows(2 * s.groups * s.keys + s.heads * s.values, -1, 1);
    c.AddRows(s.heads, -3, 3);       // b
    const int64_t decays = s.heads * (s.key_decays ? s.keys : 1);
    c.AddRows(decays, -3, 3);        // a
    c.AddShared({s.heads}, -3, 2);   // a_log
    c.AddShared({decays}, -2, 30);   // dt_bias: up to values at which softplus(x) = x
    c.AddState({s.heads, s.keys, s.values});
    c.output_width = s.heads * s.values;
    c.attributes.Set("by_group", by_group);
    c.attributes.Set("in_turn", s.groups == 3);
    c.attributes.Set("share_scale", 1 + by_group);
    by_group = 1 - by_group;
    // The contract's bound for K = 33 and the longest sequence's 70 tokens, 350 roundings of 6e-8,
    // most of which cancel. Of the 2.4e-5 that kernels on tensor cores may lose beside that, most
    // cancels, too.
    c.tolerance = 1e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
