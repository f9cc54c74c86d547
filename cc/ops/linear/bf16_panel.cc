#include "cc/ops/linear/bf16_panel.h"

#include <algorithm>
#include <cstring>

#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {

int64_t Bf16PanelBytes(DType, int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements / 2 * kPanelPairBytes;
}

void PackBf16Panel(const StoredRows& source, int64_t count, uint8_t* panel) {
  std::memset(panel, 0, Bf16PanelBytes(source.dtype, source.k));
  // A line of 64 bytes of each row at a time: the part of the panel that it goes to stays in L1.
  for (int64_t begin = 0; begin < source.k; begin += kPaddedElements) {
    const int64_t bytes = 2 * std::min(kPaddedElements, source.k - begin);
    uint8_t* const block = panel + begin / 2 * kPanelPairBytes;
    for (int64_t row = 0; row < count; ++row) {
      const uint8_t* const from = source.rows + row * source.stride + 2 * begin;
      uint8_t* const to = block + row * kPairBytes;
      int64_t at = 0;
      for (; at + kPairBytes <= bytes; at += kPairBytes) {
        std::memcpy(to + at / kPairBytes * kPanelPairBytes, from + at, kPairBytes);
      }
      if (at < bytes) std::memcpy(to + at / kPairBytes * kPanelPairBytes, from + at, 2);
    }
  }
}

void ReadBf16PanelRow(DType, const uint8_t* panel, int64_t row, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    uint16_t bits;
    std::memcpy(&bits, panel + i / 2 * kPanelPairBytes + row * kPairBytes + i % 2 * 2, 2);
    out[i] = Bf16ToFloat(bits);
  }
}

}  // namespace pagemill::ops::linear
