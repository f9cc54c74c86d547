// What every kernel of `gated_delta` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {
namespace {

struct Sizes {
  int64_t heads, groups, keys, values;
};

}  // namespace

void CheckGatedDeltaConformance(const OpDefinition& op, const device::Capabilities& caps) {
  int by_group = 0;
  for (const Sizes& s : {Sizes{1, 1, 1, 1}, Sizes{6, 2, 5, 7}, Sizes{4, 4, 16, 32},
                         Sizes{3, 1, 33, 19}, Sizes{6, 3, 8, 5}, Sizes{2, 1, 24, 50},
                         Sizes{1, 1, 132, 20}, Sizes{1, 1, 136, 5}}) {
    conformance::StateCase c{.op = op};
    c.AddRows(2 * s.groups * s.keys + s.heads * s.values, -1, 1);
    c.AddRows(s.heads, -3, 3);       // b
    const int64_t decays = s.heads * (s.keys % 8 == 0 ? s.keys : 1);
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
    // most of which cancel.
    c.tolerance = 1e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
