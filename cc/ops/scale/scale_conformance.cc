// What every kernel of `scale` has to pass (rowwise_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckScaleConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 4, 5, 16, 63, 576}) {
    conformance::RowCase c{.op = op};
    c.AddRows({33, size});
    c.AddOutput({33, size});
    c.attributes.Set("by", -0.22);
    c.tolerance = {};  // exact
    CheckRowCase(c, caps);
  }
}

}  // namespace pagemill::ops
