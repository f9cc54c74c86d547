// What every kernel of `add_rms_norm` has to pass: closeness to the reference within the
// contract's bound for odd sizes, and the checks of rowwise_conformance.h.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckAddRmsNormConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 16, 17, 31, 64, 65, 576}) {
    for (int64_t rows : {1, 7, 40}) {
      conformance::RowCase c{.op = op};
      c.AddRows({rows, size});
      c.AddRows({rows, size});
      c.AddShared({size});
      c.act_inputs = 0;  // add_rms_norm_test.cc: the sum is rounded before it is normalized
      c.AddOutput({rows, size});
      c.AddOutput({rows, size});
      c.attributes.Set("eps", 1e-5);
      c.attributes.Set("weight_offset", 1);
      c.tolerance = {.abs = 1e-6, .rel = 2e-6};  // as rms_norm
      CheckRowCase(c, caps);
    }
  }
}

}  // namespace pagemill::ops
