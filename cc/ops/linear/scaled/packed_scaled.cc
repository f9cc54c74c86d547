#include "cc/ops/linear/scaled/packed_scaled.h"

#include <algorithm>
#include <cstring>

namespace pagemill::ops::scaled {

int64_t ScaledSliceBytes(DType, int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements * kSliceRows;
}

void PackScaledSlice(const linear::StoredRows& source, int64_t count, uint8_t* slice) {
  const uint8_t offset = source.dtype == DType::kI8 ? kInt8Offset : 0;
  std::memset(slice, offset, ScaledSliceBytes(source.dtype, source.k));
  // One 64-byte line of each row at a time, so that the part of the slice that is written stays in
  // L1.
  for (int64_t begin = 0; begin < source.k; begin += kPaddedElements) {
    const int64_t elements = std::min(kPaddedElements, source.k - begin);
    for (int64_t row = 0; row < count; ++row) {
      const uint8_t* const from = source.rows + row * source.stride + begin;
      uint8_t* to = slice + begin * kSliceRows + row * kQuadBytes;
      for (int64_t at = 0; at < elements; at += kQuadBytes, to += kSliceQuadBytes) {
        for (int i = 0; i < kQuadBytes; ++i) {
          if (at + kQuadOrder[i] >= elements) continue;
          to[i] = static_cast<uint8_t>(from[at + kQuadOrder[i]] + offset);
        }
      }
    }
  }
}

}  // namespace pagemill::ops::scaled
