// What every kernel of `causal_conv` has to pass (state_conformance.h), for odd sizes.
#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/states/state_conformance.h"

namespace pagemill::ops {

void CheckCausalConvConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t taps : {2, 4, 8}) {
    for (int64_t channels : {1, 16, 33, 300}) {
      conformance::StateCase c{.op = op};
      c.AddRows(channels, -2, 2);
      c.AddShared({channels, taps}, -1, 1);
      if (channels % 2 == 0) {
        c.AddShared({channels}, -1, 1);
      } else {
        c.AddMissing();
      }
      c.AddState({taps - 1, channels});
      c.output_width = channels;
      if (channels == 33) {
        c.attributes.Set("kind", static_cast<double>(ActivationKind::kIdentity));
      }
      // The contract's bounds: 8 taps of products below 2, and Silu's 4e-7 of results up to 9.
      c.tolerance = 2e-6;
      CheckStateCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
