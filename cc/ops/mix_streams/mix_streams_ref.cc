// The reference of `mix_streams`.
#include <cstdint>

#include "cc/ops/mix_streams/mix_streams.h"

namespace pagemill::ops::mix_streams {

void RunReference(const OpCall& call, KernelContext&) {
  const Args args = ToArgs(call);
  for (int64_t t = 0; t < args.z.shape[0]; ++t) {
    for (int64_t m = 0; m < args.mixes; ++m) {
      const float* const weights =
          args.weights.Row<const float>(t) + m * args.weights_of_mix();
      for (int64_t i = 0; i < args.width; ++i) {
        double sum = 0;
        for (int64_t n = 0; n < args.streams; ++n) {
          sum += double{weights[n]} * args.x.Row<const float>(t)[n * args.width + i];
        }
        if (args.y.rank > 0) {
          sum += double{weights[args.streams]} * args.y.Row<const float>(t)[i];
        }
        args.z.Row<float>(t)[m * args.width + i] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace pagemill::ops::mix_streams
