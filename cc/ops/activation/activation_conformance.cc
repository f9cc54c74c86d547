// What every kernel of `activation` has to pass: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/activation/activation_kind.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckActivationConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int32_t kind = 0; kind < kNumActivationKinds; ++kind) {
    for (int64_t size : {1, 3, 4, 7, 16, 17, 31, 100, 3000, 3001}) {
      conformance::RowCase c{.op = op};
      c.AddRows({5, size}).FillUniform(c.random, -12, 12);
      c.AddOutput({5, size});
      c.attributes.Set("kind", kind);
      c.attributes.Set("limit", size % 2 == 0 ? 0 : 2.5);
      if (size % 4 == 3) c.attributes.Set("lower", -0.75);  // in place of -2.5
      c.tolerance = {.abs = 1e-6 * 12};  // the contract's bound at |x| <= 12
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
