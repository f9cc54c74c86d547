#include "cc/ops/quantized/internal/block_writers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::internal {
namespace {

// The nearest integer in [low, high]; low for NaN.
int RoundTo(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  if (value >= static_cast<float>(high)) return high;
  return static_cast<int>(std::floor(value + 0.5f));
}

// The smallest f16 that is not less than `value`, which is not negative.
uint16_t F16NotBelow(float value) {
  const uint16_t bits = FloatToF16(value);
  return F16ToFloat(bits) < value ? static_cast<uint16_t>(bits + 1) : bits;
}

float LargestOf(const IntegerBlock& block, int64_t begin, int64_t count) {
  float largest = 0;
  for (int64_t i = begin; i < begin + count; ++i) {
    largest = std::max(largest, std::fabs(block.Value(i)));
  }
  return largest;
}

// 256 elements in -32..31, scales and d.
void StoreQ6K(const std::array<int, kBlockElements>& q, const int8_t* scales, uint16_t d,
              uint8_t* out) {
  std::memset(out, 0, kQ6KScalesOffset);
  for (int i = 0; i < kBlockElements; ++i) {
    const int half = i / 128, group = i % 128 / 32, bits = q[static_cast<size_t>(i)] + 32;
    uint8_t* nibbles = out + 64 * half + 32 * (group % 2) + i % 32;
    *nibbles = static_cast<uint8_t>(*nibbles | (bits & 15) << (4 * (group / 2)));
    uint8_t* pairs = out + 128 + 32 * half + i % 32;
    *pairs = static_cast<uint8_t>(*pairs | (bits >> 4) << (2 * group));
  }
  std::memcpy(out + kQ6KScalesOffset, scales, kBlockElements / kSubBlock);
  StoreLe16(out + kQ6KScaleOffset, d);
}

// 8 scales of 6 bits, which are minima as well.
void StoreScales6(const std::array<int, kSubBlocksOfK>& scales, uint8_t* packed) {
  for (size_t s = 0; s < 4; ++s) {
    const int low = scales[s], high = scales[s + 4];
    packed[s] = packed[s + 4] = static_cast<uint8_t>(low | high >> 4 << 6);
    packed[s + 8] = static_cast<uint8_t>((high & 15) | (high & 15) << 4);
  }
}

}  // namespace

void WriteQ4_0(const IntegerBlock& block, int64_t elements, float step, uint8_t* out) {
  const float inverse = 1 / step;
  std::array<int, 32> q;
  for (int64_t i = 0; i < elements; i += 32, out += 18) {
    const int8_t* from = block.q.data() + i;
    for (size_t j = 0; j < q.size(); ++j) {
      q[j] = RoundTo(static_cast<float>(from[j]) * inverse, -8, 8);
    }
    const int sign = *std::max_element(q.begin(), q.end()) > 7 ? -1 : 1;
    StoreLe16(out, FloatToF16(static_cast<float>(sign) * step * block.Scale(i)));
    for (size_t j = 0; j < 16; ++j) {
      out[2 + j] = static_cast<uint8_t>((sign * q[j] + 8) | (sign * q[j + 16] + 8) << 4);
    }
  }
}

void WriteQ8_0(const IntegerBlock& block, int64_t elements, uint8_t* out) {
  for (int64_t i = 0; i < elements; i += 32, out += 34) {
    StoreLe16(out, FloatToF16(block.Scale(i)));
    std::memcpy(out + 2, block.q.data() + i, 32);
  }
}

void WriteRoundedQ8_0(const IntegerBlock& block, int64_t elements, uint8_t* out) {
  for (int64_t i = 0; i < elements; i += 32, out += 34) {
    const uint16_t d = F16NotBelow(LargestOf(block, i, 32) / 127);
    const float scale = F16ToFloat(d), inverse = scale > 0 ? 1 / scale : 0;
    StoreLe16(out, d);
    for (int64_t j = 0; j < 32; ++j) {
      out[2 + j] = static_cast<uint8_t>(RoundTo(block.Value(i + j) * inverse, -127, 127));
    }
  }
}

void WriteOddQ4K(const IntegerBlock& block, float step, uint8_t* out) {
  std::array<int, kSubBlocksOfK> scales;
  for (size_t s = 0; s < scales.size(); ++s) scales[s] = block.scales[2 * s];
  StoreLe16(out, FloatToF16(2 * step * block.d));
  StoreLe16(out + 2, FloatToF16(15 * step * block.d));
  StoreScales6(scales, out + kQ45KScalesOffset);
  const float inverse = 1 / step;
  const auto code = [&](int i) {
    const float q = static_cast<float>(block.q[static_cast<size_t>(i)]) * inverse;
    return RoundTo((q + 15) / 2, 0, 15);
  };
  uint8_t* nibbles = out + kQ4_KLayout.quants;
  for (int i = 0; i < kBlockElements; i += 64) {
    for (int j = i; j < i + 32; ++j) {
      *nibbles++ = static_cast<uint8_t>(code(j) | code(j + 32) << 4);
    }
  }
}

void WriteQ6K(const IntegerBlock& block, float step, uint8_t* out) {
  const float inverse = 1 / step;
  std::array<int, kBlockElements> q;
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = RoundTo(static_cast<float>(block.q[i]) * inverse, -32, 31);
  }
  StoreQ6K(q, block.scales.data(), FloatToF16(step * block.d), out);
}

void WriteRoundedQ6K(const IntegerBlock& block, uint8_t* out) {
  constexpr size_t kCount = kBlockElements / kSubBlock;
  std::array<float, kCount> largest;
  for (size_t s = 0; s < kCount; ++s) {
    largest[s] = LargestOf(block, static_cast<int64_t>(s) * kSubBlock, kSubBlock);
  }
  const uint16_t d = F16NotBelow(*std::max_element(largest.begin(), largest.end()) / (31 * 127));
  const float unit = F16ToFloat(d);
  std::array<int8_t, kCount> scales = {};
  std::array<int, kBlockElements> q = {};
  for (size_t s = 0; s < kCount && unit > 0; ++s) {
    const int scale = RoundTo(std::ceil(largest[s] / (31 * unit)), 1, 127);
    scales[s] = static_cast<int8_t>(scale);
    const float inverse = 1 / (unit * static_cast<float>(scale));
    for (size_t i = s * kSubBlock; i < (s + 1) * kSubBlock; ++i) {
      q[i] = RoundTo(block.Value(static_cast<int64_t>(i)) * inverse, -32, 31);
    }
  }
  StoreQ6K(q, scales.data(), d, out);
}

}  // namespace pagemill::ops::internal
