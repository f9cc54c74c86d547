// What every kernel of `add` has to pass: closeness to the reference within the contract's bound
// for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckAddConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 4, 5, 16, 63, 576}) {
    for (bool broadcast : {false, true}) {
      conformance::RowCase c{.op = op};
      c.AddRows({33, size});
      if (broadcast) {
        c.AddShared({size});
      } else {
        c.AddRows({33, size});
      }
      c.AddOutput({33, size});
      c.tolerance = {};  // exact
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
