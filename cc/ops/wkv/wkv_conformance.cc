// What every kernel of `wkv` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {

void CheckWkvConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t channels : {1, 7, 32, 75, 150}) {
    conformance::StateCase c{.op = op};
    c.AddRows(channels, -6, 6);      // key
    c.AddRows(channels, -1, 1);      // value
    c.AddShared({channels}, -6, 2);  // decay: from means of all tokens to ones of the last
    c.AddShared({channels}, -2, 2);  // first
    c.AddState({3, channels});
    c.output_width = channels;
    // The contract's bound for 70 tokens, the longest sequence, whose errors mostly cancel.
    c.tolerance = 2e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
