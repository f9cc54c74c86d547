#include <cmath>

#include "cc/ops/sparse_relu/sparse_relu.h"

namespace pagemill::ops {

void SparseReluReference(const OpCall& call, KernelContext&) {
  const SparseReluArgs args = ToSparseReluArgs(call);
  const int64_t size = args.x.RowElements();
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float* x = args.x.Row<float>(n);
    float* y = args.y.Row<float>(n);
    double mean = 0;
    for (int64_t i = 0; i < size; ++i) mean += x[i];
    mean /= static_cast<double>(size);
    double variance = 0;
    for (int64_t i = 0; i < size; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(size);
    const double cutoff = mean + args.deviations * std::sqrt(variance);
    for (int64_t i = 0; i < size; ++i) {
      const double above = x[i] - cutoff;
      y[i] = above < 0 ? 0.0f : static_cast<float>(above);  // false for NaN, which remains
    }
  }
}

}  // namespace pagemill::ops
