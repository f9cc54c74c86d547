// What every kernel of `gated_recurrence` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {

void CheckGatedRecurrenceConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t channels : {1, 7, 32, 75, 150}) {
    conformance::StateCase c{.op = op};
    c.AddRows(channels, -1, 1);      // x
    c.AddRows(channels, -6, 6);      // gate
    c.AddShared({channels}, -6, 2);  // rate: from states that hardly decay to ones that vanish
    c.AddState({channels});
    c.output_width = channels;
    // The contract's bound for 70 tokens, the longest sequence, whose errors mostly cancel.
    c.tolerance = 2e-5;
    CheckStateCase(c, caps);
  }
}

}  // namespace pagemill::ops
