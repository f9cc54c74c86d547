#include "cc/ops/head_linear/scaled_heads.h"

#include <cmath>
#include <string>
#include <vector>

#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::head_linear {
namespace {

constexpr int64_t kAlignment = 64, kGrain = 16;  // bytes; rows

Status CheckScales(const TensorView& weight, int64_t matrix) {
  const TensorView scales = PartOf(weight, weight.parts->scales, matrix);
  for (int64_t row = 0; row < scales.shape[0]; ++row) {
    for (int64_t column = 0; column < scales.shape[1]; ++column) {
      if (std::isfinite(scales.Row<const float>(row)[column])) continue;
      return DataLoss("has a scale that is not finite, of head " + std::to_string(matrix));
    }
  }
  return OkStatus();
}

}  // namespace

TensorView AsBf16(const TensorView& weight) {
  TensorView view = weight;
  view.dtype = DType::kBF16;
  view.parts = nullptr;
  const int64_t bytes = RowBytes(view.dtype, view.RowElements());
  view.row_stride_bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return view;
}

int64_t ScaledHeadsBytes(const TensorView& weight) {
  return weight.shape[0] * AsBf16(weight).row_stride_bytes;
}

Status PackScaledHeads(const TensorView& weight, std::byte* packed, device::ThreadPool& pool) {
  const int64_t rows = weight.shape[1], columns = weight.shape[2];
  const int64_t stride = AsBf16(weight).row_stride_bytes;
  for (int64_t head = 0; head < weight.shape[0]; ++head) {
    PAGEMILL_RETURN_IF_ERROR(CheckScales(weight, head));
    uint16_t* const out = reinterpret_cast<uint16_t*>(packed + head * stride);
    pool.ParallelFor(rows, kGrain, [&](int64_t begin, int64_t end, int) {
      std::vector<float> values(static_cast<size_t>(columns));
      for (int64_t row = begin; row < end; ++row) {
        ReadWeightRow(weight, head, row, values.data());
        uint16_t* to = out + row * columns;
        for (float value : values) *to++ = FloatToBf16(value);
      }
    });
  }
  return OkStatus();
}

}  // namespace pagemill::ops::head_linear
