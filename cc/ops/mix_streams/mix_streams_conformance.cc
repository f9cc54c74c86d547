// What every kernel of `mix_streams` has to pass (rowwise_conformance.h), for odd sizes, one and
// many mixes, with and without the result of a branch.
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {

void CheckMixStreamsConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t streams : {1, 3, 4}) {
    for (int64_t width : {1, 7, 32, 33, 100}) {
      for (int64_t mixes : {0, 1, 4}) {  // 0: weights [T, J]
        for (bool joins : {false, true}) {
          const int64_t terms = streams + (joins ? 1 : 0);
          conformance::RowCase c{.op = op};
          c.AddRows({7, streams * width});
          if (mixes == 0) {
            c.AddRows({7, terms});
          } else {
            c.AddRows({7, mixes, terms});
          }
          if (joins) c.AddRows({7, width});
          c.act_inputs = joins ? 0b101 : 0b1;  // weights are f32
          c.AddOutput({7, (mixes == 0 ? 1 : mixes) * width});
          // The contract's bound with |x|, |weights| <= 2.
          c.tolerance = {.abs = static_cast<double>(terms * 4 * (terms + 1)) * 0x1p-24};
          CheckRowCase(c, caps);
        }
      }
    }
  }
}

}  // namespace pagemill::ops
