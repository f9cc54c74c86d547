// Formats whose elements are coordinates of points of a table: 8 elements are a point of IQ1_* and
// IQ2_*, 4 are one of IQ3_*. Blocks have 256 elements.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/quantized/internal/integer_block.h"

namespace pagemill::ops::internal {
namespace {

#include "cc/ops/quantized/internal/point_tables.inc"

// Magnitudes of the coordinates of a point.
constexpr std::array<int8_t, 4> kIq2Values = {8, 25, 43, 0};
constexpr std::array<int8_t, 8> kIq3XxsValues = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<int8_t, 8> kIq3SValues = {1, 3, 5, 7, 9, 11, 13, 15};

// 8 coordinates; bit j of `signs` negates coordinate j.
void LoadPoint8(uint16_t point, uint32_t signs, int8_t* q) {
  for (int j = 0; j < 8; ++j) {
    const int8_t value = kIq2Values[point >> (2 * j) & 3];
    q[j] = static_cast<int8_t>((signs >> j & 1) != 0 ? -value : value);
  }
}

// 4 coordinates; bit j of `signs` negates coordinate j.
void LoadPoint4(uint16_t point, const std::array<int8_t, 8>& values, uint32_t signs, int8_t* q) {
  for (int j = 0; j < 4; ++j) {
    const int8_t value = values[point >> (4 * j) & 7];
    q[j] = static_cast<int8_t>((signs >> j & 1) != 0 ? -value : value);
  }
}

// 8 coordinates of -1, 0 and 1, eight times as large, plus `shift`.
void LoadTernaryPoint(uint16_t point, int shift, int8_t* q) {
  for (int j = 0; j < 8; ++j) q[j] = static_cast<int8_t>(8 * ((point >> (2 * j) & 3) - 1) + shift);
}

// The signs of 8 elements in 7 bits: an even number is negative.
uint32_t EvenSigns(uint32_t bits) {
  bits &= 127;
  return bits | static_cast<uint32_t>(std::popcount(bits) & 1) << 7;
}

int8_t OddScale(uint32_t bits) { return static_cast<int8_t>(2 * bits + 1); }

// 16 scales of 4 bits, the low nibble of a byte first.
void LoadScaleNibbles(const uint8_t* bytes, IntegerBlock* out) {
  for (size_t s = 0; s < 16; ++s) {
    out->scales[s] = OddScale(static_cast<uint32_t>(bytes[s / 2]) >> (4 * (s % 2)) & 15);
  }
}

void SetScaleOf32(int sub_block, int8_t scale, IntegerBlock* out) {
  out->scales[static_cast<size_t>(2 * sub_block)] = scale;
  out->scales[static_cast<size_t>(2 * sub_block + 1)] = scale;
}

// How far the points of IQ1_* are moved, in eighths.
int ShiftOf(bool is_down) { return is_down ? -1 : 1; }

}  // namespace

// f16 d, 32 bytes of the low 8 bits of an index, 8 of: 4 high parts of 3 bits, a scale of 3, a
// shift.
void LoadIq1S(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < 8; ++s) {
    const uint32_t high = LoadLe16(block + 34 + 2 * s);
    SetScaleOf32(s, OddScale(high >> 12 & 7), out);
    for (int p = 0; p < 4; ++p) {
      const size_t index = block[2 + 4 * s + p] | (high >> (3 * p) & 7) << 8;
      LoadTernaryPoint(kIq1Points[index], ShiftOf((high & 0x8000) != 0),
                       out->q.data() + 32 * s + 8 * p);
    }
  }
}

// 32 bytes of the low 8 bits of an index, 16 bytes of nibbles: 3 high bits and a shift; 4 of: 4
// scales of 3 bits and a nibble of d.
void LoadIq1M(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < 16; ++s) {
    const uint32_t scales = LoadLe16(block + 48 + s / 4 * 2);
    out->scales[static_cast<size_t>(s)] = OddScale(scales >> (3 * (s % 4)) & 7);
    for (int p = 0; p < 2; ++p) {
      const uint32_t high = static_cast<uint32_t>(block[32 + s]) >> (4 * p);
      LoadTernaryPoint(kIq1Points[block[2 * s + p] | (high & 7) << 8], ShiftOf((high & 8) != 0),
                       out->q.data() + 16 * s + 8 * p);
    }
  }
}

// f16 d, 8 of: 4 bytes of indices, 4 signs of 7 bits and a scale of 4.
void LoadIq2Xxs(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < 8; ++s) {
    const uint8_t* indices = block + 2 + 8 * s;
    const uint32_t signs = LoadLe32(indices + 4);
    SetScaleOf32(s, OddScale(signs >> 28), out);
    for (int p = 0; p < 4; ++p) {
      LoadPoint8(kIq2XxsPoints[indices[p]], EvenSigns(signs >> (7 * p)),
                 out->q.data() + 32 * s + 8 * p);
    }
  }
}

// f16 d, 32 of: an index of 9 bits and signs of 7; 8 bytes of scales.
void LoadIq2Xs(const uint8_t* block, IntegerBlock* out) {
  LoadScaleNibbles(block + 66, out);
  for (int p = 0; p < 32; ++p) {
    const uint32_t bits = LoadLe16(block + 2 + 2 * p);
    LoadPoint8(kIq2XsPoints[bits & 511], EvenSigns(bits >> 9), out->q.data() + 8 * p);
  }
}

// f16 d, 32 bytes of the low 8 bits of an index, 32 bytes of signs, 8 bytes of pairs of high bits,
// 8 bytes of scales.
void LoadIq2S(const uint8_t* block, IntegerBlock* out) {
  LoadScaleNibbles(block + 74, out);
  for (int p = 0; p < 32; ++p) {
    const uint32_t high = static_cast<uint32_t>(block[66 + p / 4]) >> (2 * (p % 4)) & 3;
    LoadPoint8(kIq2SPoints[block[2 + p] | high << 8], block[34 + p], out->q.data() + 8 * p);
  }
}

// f16 d, 64 bytes of indices, 8 of: 4 signs of 7 bits for 8 elements and a scale of 4.
void LoadIq3Xxs(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < 8; ++s) {
    const uint32_t signs = LoadLe32(block + 66 + 4 * s);
    SetScaleOf32(s, OddScale(signs >> 28), out);
    for (int p = 0; p < 8; ++p) {
      LoadPoint4(kIq3XxsPoints[block[2 + 8 * s + p]], kIq3XxsValues,
                 EvenSigns(signs >> (p / 2 * 7)) >> (p % 2 * 4), out->q.data() + 32 * s + 4 * p);
    }
  }
}

// f16 d, 64 bytes of the low 8 bits of an index, 8 bytes of their high bits, 32 bytes of signs, 4
// bytes of scales.
void LoadIq3S(const uint8_t* block, IntegerBlock* out) {
  for (int s = 0; s < 8; ++s) {
    SetScaleOf32(s, OddScale(static_cast<uint32_t>(block[106 + s / 2]) >> (s % 2 * 4) & 15), out);
    for (int p = 0; p < 8; ++p) {
      const uint32_t high = static_cast<uint32_t>(block[66 + s]) >> p & 1;
      LoadPoint4(kIq3SPoints[block[2 + 8 * s + p] | high << 8], kIq3SValues,
                 static_cast<uint32_t>(block[74 + 4 * s + p / 2]) >> (p % 2 * 4),
                 out->q.data() + 32 * s + 4 * p);
    }
  }
}

}  // namespace pagemill::ops::internal
