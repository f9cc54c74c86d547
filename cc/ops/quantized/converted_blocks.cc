#include "cc/ops/quantized/converted_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops {
namespace {

constexpr int kMaxElements = 256;
constexpr int kSubBlock = 16;

// A block as integers: element i is d * scales[s] * q[i] - dmin * minima[s], s = i / kSubBlock.
struct Integers {
  float d = 0;
  float dmin = 0;
  std::array<int8_t, kMaxElements> q = {};
  std::array<int8_t, kMaxElements / kSubBlock> scales = {};
  std::array<int8_t, kMaxElements / kSubBlock> minima = {};
};

// Values of the codes of iq4_nl and iq4_xs, and twice those of mxfp4 (e2m1).
constexpr std::array<int8_t, 16> kNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<int8_t, 16> kE2m1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

float LoadF16(const uint8_t* from) { return F16ToFloat(LoadLe16(from)); }

// 32 codes of 4 bits in 16 bytes: the low nibbles first.
void LoadCodes(const uint8_t* bytes, const std::array<int8_t, 16>& values, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = values[bytes[i] & 15];
    q[i + 16] = values[bytes[i] >> 4];
  }
}

// 128 integers of 2 bits in 32 bytes: element i is in bits 2 (i / 32) of byte i % 32.
void LoadBitPairs(const uint8_t* bytes, int8_t* q) {
  for (int i = 0; i < 128; ++i) q[i] = static_cast<int8_t>(bytes[i % 32] >> (2 * (i / 32)) & 3);
}

// f16 d, f16 m, 4 bytes of fifth bits, 16 bytes of nibbles.
void LoadQ5_1(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block);
  out->dmin = -LoadF16(block + 2);
  out->scales.fill(1);
  out->minima.fill(1);
  const uint32_t high = LoadLe32(block + 4);
  for (int i = 0; i < 32; ++i) {
    const int low = block[8 + i % 16] >> (i < 16 ? 0 : 4) & 15;
    out->q[static_cast<size_t>(i)] = static_cast<int8_t>(low | (high >> i & 1) << 4);
  }
}

// 16 bytes of scales (low nibbles) and minima, 64 bytes of bit pairs, f16 d, f16 dmin.
void LoadQ2K(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block + 80);
  out->dmin = LoadF16(block + 82);
  for (size_t s = 0; s < out->scales.size(); ++s) {
    out->scales[s] = static_cast<int8_t>(block[s] & 15);
    out->minima[s] = static_cast<int8_t>(block[s] >> 4);
  }
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 16 + 32 * half, out->q.data() + 128 * half);
  }
}

// 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, f16 d. A third bit of 0
// subtracts 4.
void LoadQ3K(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block + 108);
  const uint8_t* scales = block + 96;
  for (size_t s = 0; s < out->scales.size(); ++s) {
    const int low = scales[s % 8] >> (s < 8 ? 0 : 4) & 15;
    const int high = scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    out->scales[s] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 32 + 32 * half, out->q.data() + 128 * half);
  }
  for (int i = 0; i < kMaxElements; ++i) {
    if ((block[i % 32] >> (i / 32) & 1) == 0) out->q[static_cast<size_t>(i)] -= 4;
  }
}

// f16 d, 2 bytes of the high pairs and 4 bytes of the low nibbles of 8 scales, 128 bytes of codes.
void LoadIq4Xs(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block);
  const int high = LoadLe16(block + 2);
  for (int s = 0; s < 8; ++s) {
    const int low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
    const int scale = (low | (high >> (2 * s) & 3) << 4) - 32;
    std::fill_n(out->scales.begin() + 2 * s, 2, static_cast<int8_t>(scale));
    LoadCodes(block + 8 + 16 * s, kNonlinear, out->q.data() + 32 * s);
  }
}

// Digit `place` of a byte of tq1_0, from its first, as -1, 0 or 1: a byte b stands for b / 256 in
// base 3.
int8_t Ternary(uint8_t byte, int place) {
  constexpr std::array<int, 5> kPowers = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[static_cast<size_t>(place)]);
  return static_cast<int8_t>((shifted * 3 >> 8) - 1);
}

// 48 bytes of 5 digits, 4 bytes of 4 digits, f16 d. A group of 32, 16 or 4 bytes has the first
// digits of all its bytes first.
void LoadTq1(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block + 52);
  out->scales.fill(1);
  for (int i = 0; i < 160; ++i) out->q[static_cast<size_t>(i)] = Ternary(block[i % 32], i / 32);
  for (int i = 0; i < 80; ++i) {
    out->q[static_cast<size_t>(160 + i)] = Ternary(block[32 + i % 16], i / 16);
  }
  for (int i = 0; i < 16; ++i) {
    out->q[static_cast<size_t>(240 + i)] = Ternary(block[48 + i % 4], i / 4);
  }
}

// 64 bytes of bit pairs, of which 1 is subtracted, f16 d.
void LoadTq2(const uint8_t* block, Integers* out) {
  out->d = LoadF16(block + 64);
  out->scales.fill(1);
  for (int half = 0; half < 2; ++half) {
    LoadBitPairs(block + 32 * half, out->q.data() + 128 * half);
  }
  for (int8_t& q : out->q) --q;
}

void Load(DType dtype, const uint8_t* block, Integers* out) {
  switch (dtype) {
    case DType::kQ5_1:
      return LoadQ5_1(block, out);
    case DType::kQ2_K:
      return LoadQ2K(block, out);
    case DType::kQ3_K:
      return LoadQ3K(block, out);
    case DType::kIQ4_NL:
      out->d = LoadF16(block);
      out->scales.fill(1);
      return LoadCodes(block + 2, kNonlinear, out->q.data());
    case DType::kIQ4_XS:
      return LoadIq4Xs(block, out);
    case DType::kMxfp4:
      out->d = std::ldexp(1.0f, block[0] - 128);  // half of 2^(s - 127)
      out->scales.fill(1);
      return LoadCodes(block + 1, kE2m1Doubled, out->q.data());
    case DType::kTQ1_0:
      return LoadTq1(block, out);
    case DType::kTQ2_0:
      return LoadTq2(block, out);
    default:
      CheckFailed(__FILE__, __LINE__, "not a format that is converted");
  }
}

float ScaleOf(const Integers& block, int64_t element) {
  return block.d * static_cast<float>(block.scales[static_cast<size_t>(element / kSubBlock)]);
}

float ValueOf(const Integers& block, int64_t element) {
  const float minimum =
      block.dmin * static_cast<float>(block.minima[static_cast<size_t>(element / kSubBlock)]);
  const float product =
      ScaleOf(block, element) * static_cast<float>(block.q[static_cast<size_t>(element)]);
  return product - minimum;
}

void WriteBf16(const Integers& block, int64_t elements, uint8_t* out) {
  for (int64_t i = 0; i < elements; ++i) {
    const uint16_t bits = FloatToBf16(ValueOf(block, i));
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void WriteQ8_0(const Integers& block, int64_t elements, uint8_t* out) {
  for (int64_t i = 0; i < elements; i += 32, out += 34) {
    StoreLe16(out, FloatToF16(ScaleOf(block, i)));
    std::memcpy(out + 2, block.q.data() + i, 32);
  }
}

void WriteQ4_0(const Integers& block, int64_t elements, uint8_t* out) {
  for (int64_t i = 0; i < elements; i += 32, out += 18) {
    StoreLe16(out, FloatToF16(block.d));
    const int8_t* q = block.q.data() + i;
    for (int j = 0; j < 16; ++j) {
      out[2 + j] = static_cast<uint8_t>((q[j] + 8) | (q[j + 16] + 8) << 4);
    }
  }
}

void WriteQ6K(const Integers& block, uint8_t* out) {
  std::memset(out, 0, 192);
  for (int i = 0; i < kMaxElements; ++i) {
    const int half = i / 128, group = i % 128 / 32, q = block.q[static_cast<size_t>(i)] + 32;
    uint8_t* nibbles = out + 64 * half + 32 * (group % 2) + i % 32;
    *nibbles = static_cast<uint8_t>(*nibbles | (q & 15) << (4 * (group / 2)));
    uint8_t* pairs = out + 128 + 32 * half + i % 32;
    *pairs = static_cast<uint8_t>(*pairs | (q >> 4) << (2 * group));
  }
  std::memcpy(out + kQ6KScalesOffset, block.scales.data(), block.scales.size());
  StoreLe16(out + kQ6KScaleOffset, FloatToF16(block.d));
}

// visit(block, index of its first element).
template <class Visit>
void ForEachBlock(DType dtype, const uint8_t* row, int64_t elements, const Visit& visit) {
  const DTypeInfo& info = Info(dtype);
  Integers block;
  for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) {
    Load(dtype, row, &block);
    visit(block, i);
  }
}

}  // namespace

DType ConvertedDType(DType dtype) {
  switch (dtype) {
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return DType::kQ4_0;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMxfp4:
      return DType::kQ8_0;
    case DType::kQ3_K:
      return DType::kQ6_K;
    default:
      return DType::kBF16;
  }
}

void DequantizeConverted(DType dtype, const uint8_t* row, int64_t elements, float* out) {
  const int64_t size = Info(dtype).block_elements;
  ForEachBlock(dtype, row, elements, [&](const Integers& block, int64_t first) {
    for (int64_t i = 0; i < size; ++i) out[first + i] = ValueOf(block, i);
  });
}

void ConvertRow(DType dtype, const uint8_t* row, int64_t elements, uint8_t* out) {
  const int64_t size = Info(dtype).block_elements;
  const DType to = ConvertedDType(dtype);
  ForEachBlock(dtype, row, elements, [&](const Integers& block, int64_t first) {
    uint8_t* const at = out + RowBytes(to, first);
    if (to == DType::kBF16) return WriteBf16(block, size, at);
    if (to == DType::kQ8_0) return WriteQ8_0(block, size, at);
    if (to == DType::kQ4_0) return WriteQ4_0(block, size, at);
    WriteQ6K(block, at);
  });
}

Status CheckConvertible(DType dtype, const uint8_t* row, int64_t elements) {
  if (dtype != DType::kMxfp4 && dtype != DType::kIQ4_XS) return OkStatus();
  float largest = 0;
  ForEachBlock(dtype, row, elements, [&](const Integers& block, int64_t) {
    for (int64_t i = 0; i < Info(dtype).block_elements; i += kSubBlock) {
      largest = std::max(largest, std::fabs(ScaleOf(block, i)));
    }
  });
  if (largest <= 65504.0f) return OkStatus();
  return Unimplemented("has scales up to " + std::to_string(largest) +
                       ", which q8_0 does not hold: up to 65504 work");
}

}  // namespace pagemill::ops
