// What every kernel of `layer_norm` has to pass: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckLayerNormConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 384, 1001}) {
    conformance::RowCase c{.op = op};
    c.AddRows({9, size});
    c.AddShared({size});
    c.AddShared({size});
    c.AddOutput({9, size});
    c.attributes.Set("eps", 1e-5);
    // The contract's bound with |x - mean| / deviation <= 4, |w|, |b| <= 2, |mean| / deviation <= 2
    // beyond size 1; size 1 has deviation 0, so y is exactly b.
    c.tolerance = {.abs = 6e-5};
    CheckRowCase(c, caps);
  }
  // Heads of a token are rows of their own, with weights of all or of each.
  for (int64_t weights : {33, 3 * 33}) {
    conformance::RowCase heads{.op = op};
    heads.AddRows({19, 3, 33});
    heads.AddShared({weights});
    heads.AddShared({weights});
    heads.AddOutput({19, 3, 33});
    heads.attributes.Set("eps", 1e-5);
    heads.attributes.Set("weight_offset", 1);
    heads.tolerance = {.abs = 6e-5};
    CheckRowCase(heads, caps);
  }
}

}  // namespace pagemill::ops
