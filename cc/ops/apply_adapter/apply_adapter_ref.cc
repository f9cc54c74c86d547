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

// scale * A x, by rank.
void ComputeLow(const ApplyAdapterArgs& args, const AdapterMatrices& m, int64_t row, double* low) {
  const float* x = args.InputOf(row);
  for (int64_t r = 0; r < m.rank; ++r) {
    low[r] = x == nullptr ? Element(m, m.a, r * args.in + args.IdOf(row)) : 0;
    for (int64_t k = 0; x != nullptr && k < args.in; ++k) {
      low[r] += Element(m, m.a, r * args.in + k) * x[k];
    }
    low[r] *= m.scale;
  }
}

void ApplyToRow(const ApplyAdapterArgs& args, const AdaptedLayer& layer, int64_t row) {
  const float* y = layer.RowOf(layer.y, row, args.choices);
  float* z = layer.RowOf(layer.z, row, args.choices);
  const int64_t entry = args.EntryOf(row);
  const AdapterMatrices m =
      entry == ApplyAdapterArgs::kNone ? AdapterMatrices{} : layer.table[entry];
  double low[kMaxAdapterRank];
  ComputeLow(args, m, row, low);
  for (int64_t j = 0; j < layer.out; ++j) {
    double sum = y[j];
    if (m.gain != nullptr) sum *= m.gain[j];
    if (m.offset != nullptr) sum += m.offset[j];
    for (int64_t r = 0; r < m.rank; ++r) sum += low[r] * Element(m, m.b, r * layer.out + j);
    z[j] = static_cast<float>(sum);
  }
}

}  // namespace

void ApplyAdapterReference(const OpCall& call, KernelContext&) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  for (size_t i = 0; i < args.num_layers; ++i) {
    for (int64_t row = 0; row < args.num_rows; ++row) ApplyToRow(args, args.layers[i], row);
  }
}

}  // namespace pagemill::ops
