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
  bool known = false;
  WithWeightFormat(dtype, [&]<DType kDType>() {
    Dequantize<kDType>(row, elements, out);
    known = true;
  });
  if (!known) CheckFailed(__FILE__, __LINE__, "DequantizeRow: not a weight dtype");
}

}  // namespace pagemill::ops
