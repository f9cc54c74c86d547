#include <cmath>

#include "cc/ops/layer_norm/layer_norm.h"

namespace pagemill::ops {

void LayerNormReference(const OpCall& call, KernelContext&) {
  const LayerNormArgs args = ToLayerNormArgs(call);
  const int64_t size = args.w.shape[0];
  const float* w = args.w.Data<float>();
  const float* b = args.b.Data<float>();
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float* x = args.x.Row<float>(n);
    float* y = args.y.Row<float>(n);
    double mean = 0;
    for (int64_t i = 0; i < size; ++i) mean += x[i];
    mean /= static_cast<double>(size);
    double variance = 0;
    for (int64_t i = 0; i < size; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(size);
    const double scale = 1 / std::sqrt(variance + args.eps);
    for (int64_t i = 0; i < size; ++i) {
      y[i] = static_cast<float>((x[i] - mean) * scale * w[i] + b[i]);
    }
  }
}

}  // namespace pagemill::ops
