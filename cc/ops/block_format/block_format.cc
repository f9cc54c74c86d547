#include "cc/ops/block_format/block_format.h"

#include <algorithm>

#include "cc/base/status.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/decoder_portable.h"

namespace pagemill::ops {
namespace {

template <DType kDType>
void Dequantize(const uint8_t* __restrict row, int64_t elements, float* __restrict out) {
  constexpr BlockLayout kLayout = LayoutOf(kDType);
  for (int64_t i = 0; i < elements / kLayout.elements; ++i) {
    DecodeBlock<kDType>(row + i * kLayout.bytes, out + i * kLayout.elements);
  }
}

}  // namespace

bool IsWeightDType(DType dtype) {
  return std::ranges::find(kWeightDTypes, dtype) != std::ranges::end(kWeightDTypes);
}

void DequantizeRow(DType dtype, const uint8_t* row, int64_t elements, float* out) {
  switch (dtype) {
    case DType::kF32:
      return Dequantize<DType::kF32>(row, elements, out);
    case DType::kBF16:
      return Dequantize<DType::kBF16>(row, elements, out);
    case DType::kF16:
      return Dequantize<DType::kF16>(row, elements, out);
    case DType::kQ4_0:
      return Dequantize<DType::kQ4_0>(row, elements, out);
    case DType::kQ4_1:
      return Dequantize<DType::kQ4_1>(row, elements, out);
    case DType::kQ5_0:
      return Dequantize<DType::kQ5_0>(row, elements, out);
    case DType::kQ8_0:
      return Dequantize<DType::kQ8_0>(row, elements, out);
    case DType::kQ4_K:
      return Dequantize<DType::kQ4_K>(row, elements, out);
    case DType::kQ5_K:
      return Dequantize<DType::kQ5_K>(row, elements, out);
    case DType::kQ6_K:
      return Dequantize<DType::kQ6_K>(row, elements, out);
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "DequantizeRow of a dtype that is not a weight's");
}

}  // namespace pagemill::ops
