// What every kernel of `selective_scan` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {
namespace {

struct Sizes {
  int64_t channels, states;
};

}  // namespace

void CheckSelectiveScanConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (const Sizes& s : {Sizes{1, 1}, Sizes{7, 5}, Sizes{32, 16}, Sizes{75, 3}, Sizes{150, 17}}) {
    conformance::StateCase c{.op = op};
    c.AddRows(s.channels, -1, 1);                // x
    c.AddRows(s.channels, -3, 3);                // dt
    c.AddRows(s.states, -1, 1);                  // b
    c.AddRows(s.states, -1, 1);                  // c
    c.AddShared({s.channels, s.states}, -3, 2);  // a_log
    c.AddShared({s.channels}, -1, 1);            // d
    c.AddShared({s.channels}, -2, 30);           // dt_bias: up to values where softplus(x) = x
    c.AddState({s.states, s.channels});
    c.output_width = s.channels;
    // States decay by exp(-dt exp(a_log)), at least 0.3 % a token: about 300 tokens have a weight,
    // of which the longest sequence has 70. 17 + 6 * 70 roundings of 6e-8, most of which cancel.
    c.tolerance = 1e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
