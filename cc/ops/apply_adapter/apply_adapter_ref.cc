#include <bit>
#include <cstdint>

#include "cc/ops/apply_adapter/apply_adapter.h"

namespace pagemill::ops {
namespace {

double Element(const AdapterMatrices& m, const void* data, int64_t index) {
  if (m.dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const uint32_t bits = static_cast<const uint16_t*>(data)[index];
  return std::bit_cast<float>(bits << 16);
}

}  // namespace

void ApplyAdapterReference(const OpCall& call, KernelContext&) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  const int64_t out = args.y.RowElements(), in = args.x.RowElements();
  for (int64_t n = 0; n < args.y.shape[0]; ++n) {
    const float* y = args.y.Row<float>(n);
    const float* x = args.x.Row<float>(n);
    float* z = args.z.Row<float>(n);
    const AdapterMatrices* m = args.Of(n);
    double low[kMaxAdapterRank];
    const int64_t rank = m == nullptr ? 0 : m->rank;
    for (int64_t r = 0; r < rank; ++r) {
      low[r] = 0;
      for (int64_t k = 0; k < in; ++k) {
        low[r] += Element(*m, m->a, r * in + k) * x[k];
      }
      low[r] *= m->scale;
    }
    for (int64_t j = 0; j < out; ++j) {
      double sum = y[j];
      if (m != nullptr && m->gain != nullptr) sum *= m->gain[j];
      if (m != nullptr && m->offset != nullptr) sum += m->offset[j];
      for (int64_t r = 0; r < rank; ++r) sum += low[r] * Element(*m, m->b, r * out + j);
      z[j] = static_cast<float>(sum);
    }
  }
}

}  // namespace pagemill::ops
