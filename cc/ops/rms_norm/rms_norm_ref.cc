#include <cmath>

#include "cc/ops/rms_norm/rms_norm.h"

namespace pagemill::ops {

void RmsNormReference(const OpCall& call, KernelContext&) {
  const RmsNormArgs args = ToRmsNormArgs(call);
  const int64_t size = args.size();
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    for (int64_t start = 0; start < args.x.RowElements(); start += size) {
      const float* w = args.WeightsOf(start / size);
      const float* x = args.x.Row<float>(n) + start;
      float* y = args.y.Row<float>(n) + start;
      double squares = 0;
      for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + args.eps);
      for (int64_t i = 0; i < size; ++i) {
        y[i] = static_cast<float>(x[i] * scale * (static_cast<double>(w[i]) + args.weight_offset));
      }
    }
  }
}

}  // namespace pagemill::ops
