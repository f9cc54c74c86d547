#include <cmath>

#include "cc/ops/add_rms_norm/add_rms_norm.h"

namespace pagemill::ops {

void AddRmsNormReference(const OpCall& call, KernelContext&) {
  const AddRmsNormArgs args = ToAddRmsNormArgs(call);
  const int64_t size = args.w.shape[0];
  const float* w = args.w.Data<float>();
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float* x = args.x.Row<float>(n);
    const float* residual = args.residual.Row<float>(n);
    float* sum = args.sum.Row<float>(n);
    float* y = args.y.Row<float>(n);
    double squares = 0;
    for (int64_t i = 0; i < size; ++i) {
      sum[i] = x[i] + residual[i];
      squares += static_cast<double>(sum[i]) * sum[i];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + args.eps);
    for (int64_t i = 0; i < size; ++i) {
      y[i] = static_cast<float>(sum[i] * scale * (static_cast<double>(w[i]) + args.weight_offset));
    }
  }
}

}  // namespace pagemill::ops
