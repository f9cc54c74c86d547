#include <cmath>

#include "cc/ops/layer_norm/layer_norm.h"

namespace pagemill::ops {

void LayerNormReference(const OpCall& call, KernelContext&) {
  const LayerNormArgs args = ToLayerNormArgs(call);
  const int64_t size = args.size();
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    for (int64_t start = 0; start < args.x.RowElements(); start += size) {
      const float* w = args.w.Data<float>() + args.ParametersOf(start / size);
      const float* b = args.b.Data<float>() + args.ParametersOf(start / size);
      const float* x = args.x.Row<float>(n) + start;
      float* y = args.y.Row<float>(n) + start;
      double mean = 0;
      for (int64_t i = 0; i < size; ++i) mean += x[i];
      mean /= static_cast<double>(size);
      double variance = 0;
      for (int64_t i = 0; i < size; ++i) variance += (x[i] - mean) * (x[i] - mean);
      variance /= static_cast<double>(size);
      const double scale = 1 / std::sqrt(variance + args.eps);
      for (int64_t i = 0; i < size; ++i) {
        const double weight = static_cast<double>(w[i]) + args.weight_offset;
        y[i] = static_cast<float>((x[i] - mean) * scale * weight + b[i]);
      }
    }
  }
}

}  // namespace pagemill::ops
