#include "cc/ops/linear/packed_bf16.h"

#include <algorithm>
#include <cstring>

#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {

int64_t Bf16SliceBytes(DType, int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements / 2 * kSlicePairBytes;
}

void PackBf16Slice(const StoredRows& source, int64_t count, uint8_t* slice) {
  std::memset(slice, 0, Bf16SliceBytes(source.dtype, source.k));
  // One 64-byte line of each row at a time, so that the part of the slice that is written stays in
  // L1.
  for (int64_t begin = 0; begin < source.k; begin += kPaddedElements) {
    const int64_t bytes = 2 * std::min(kPaddedElements, source.k - begin);
    uint8_t* const block = slice + begin / 2 * kSlicePairBytes;
    for (int64_t row = 0; row < count; ++row) {
      const uint8_t* const from = source.rows + row * source.stride + 2 * begin;
      uint8_t* const to = block + row * kPairBytes;
      int64_t at = 0;
      for (; at + kPairBytes <= bytes; at += kPairBytes) {
        std::memcpy(to + at / kPairBytes * kSlicePairBytes, from + at, kPairBytes);
      }
      if (at < bytes) std::memcpy(to + at / kPairBytes * kSlicePairBytes, from + at, 2);
    }
  }
}

void ReadPackedBf16Row(DType, const uint8_t* slice, int64_t row, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    uint16_t bits;
    std::memcpy(&bits, slice + i / 2 * kSlicePairBytes + row * kPairBytes + i % 2 * 2, 2);
    out[i] = Bf16ToFloat(bits);
  }
}

}  // namespace pagemill::ops::linear
