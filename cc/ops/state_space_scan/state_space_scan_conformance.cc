// What every kernel of `state_space_scan` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {
namespace {

struct Sizes {
  int64_t heads, groups, states, head_dim;
};

}  // namespace

void CheckStateSpaceScanConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1}, Sizes{6, 2, 5, 7}, Sizes{4, 4, 16, 32}, Sizes{3, 1, 33, 19},
        Sizes{2, 1, 24, 50}, Sizes{1, 1, 132, 20}, Sizes{10, 5, 8, 6}}) {
    conformance::StateCase c{.op = op};
    c.AddRows(s.heads * s.head_dim + 2 * s.groups * s.states, -1, 1);
    c.AddRows(s.heads, -3, 3);       // dt
    c.AddShared({s.heads}, -3, 2);   // a_log
    c.AddShared({s.heads}, -1, 1);   // d
    c.AddShared({s.heads}, -2, 30);  // dt_bias: up to values at which softplus(x) = x
    c.AddState({s.heads, s.states, s.head_dim});
    c.output_width = s.heads * s.head_dim;
    // States decay by exp(-dt exp(a_log)), at least 0.3 % a token: about 300 tokens have a weight,
    // of which the longest sequence has 70. 33 + 3 * 70 roundings of 6e-8, most of which cancel.
    c.tolerance = 1e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
