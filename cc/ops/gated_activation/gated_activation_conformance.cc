// What every kernel of `gated_activation` has to pass: closeness to the reference within the
// contract's bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckGatedActivationConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int32_t kind = 0; kind < kNumActivationKinds; ++kind) {
    for (int64_t size : {1, 3, 4, 7, 16, 17, 31, 100, 1536}) {
      conformance::RowCase c{.op = op};
      c.AddRows({7, size}).FillUniform(c.random, -6, 6);
      c.AddRows({7, size});
      c.AddOutput({7, size});
      c.attributes.Set("kind", kind);
      c.tolerance = {.abs = 1e-6 * 6 * 2};  // the contract's bound at |gate| <= 6, |up| <= 2
      CheckRowCase(c, caps);
      c.attributes.Set("limit", 1.25);
      c.attributes.Set("up_offset", 1);
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
