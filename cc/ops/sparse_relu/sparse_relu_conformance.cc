// What every kernel of `sparse_relu` has to pass: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckSparseReluConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 2, 3, 5, 15, 16, 17, 33, 136, 1001}) {
    for (double deviations : {1.645, 0.0, -0.5}) {
      conformance::RowCase c{.op = op};
      c.AddRows({9, size});
      c.AddOutput({9, size});
      c.attributes.Set("deviations", deviations);
      c.tolerance = {.abs = 5e-5};  // the contract's bound at |x| <= 2, |mean| <= 2
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
