// What every kernel of `moe_combine` has to pass (rowwise_conformance.h), for odd sizes.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckMoeCombineConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t choices : {1, 2, 3, 8}) {
    for (int64_t width : {1, 7, 32, 33, 100, 576}) {
      for (bool shared : {false, true}) {
        conformance::RowCase c{.op = op};
        if (shared) {
          c.AddRows({7, width});
        } else {
          c.AddRows({7, choices, width});
        }
        c.AddRows({7, choices});
        c.act_inputs = 0b1;  // weights are f32
        c.AddOutput({7, width});
        // The contract's bound with |x|, |weights| <= 2.
        c.tolerance = {.abs = static_cast<double>(choices * 4 * (choices + 1)) * 0x1p-24};
        CheckRowCase(c, caps);
      }
    }
  }
}

}  // namespace pagemill::ops
