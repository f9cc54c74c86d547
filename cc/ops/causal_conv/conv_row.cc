// The body of ConvRow*.
#include "cc/ops/causal_conv/conv_row.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

template <ActivationKind kKind>
inline void ConvolveRow(const ConvRow& row) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= row.size; i += Vec::kLanes) {
    Vec::F sum = Vec::Load(row.bias + i);
    for (int64_t j = 0; j < row.taps; ++j) {
      sum = Vec::Fma(Vec::Load(row.w + j * row.w_stride + i), Vec::Load(row.x[j] + i), sum);
    }
    Vec::Store(row.y + i, Activate<kKind>(sum));
  }
  if (i == row.size) return;
  const int n = static_cast<int>(row.size - i);
  Vec::F sum = Vec::LoadN(row.bias + i, n);
  for (int64_t j = 0; j < row.taps; ++j) {
    sum = Vec::Fma(Vec::LoadN(row.w + j * row.w_stride + i, n), Vec::LoadN(row.x[j] + i, n), sum);
  }
  Vec::StoreN(row.y + i, Activate<kKind>(sum), n);
}

}  // namespace

void PAGEMILL_VEC_NAME(ConvRow)(const ConvRow& row) {
  if (row.kind == ActivationKind::kIdentity) return ConvolveRow<ActivationKind::kIdentity>(row);
  ConvolveRow<ActivationKind::kSilu>(row);
}

}  // namespace pagemill::ops
