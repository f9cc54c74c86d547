// File: cc/ops/block_format/block_layout.h
// Offsets of the fields of a block in the GGUF block formats, and the unpacking of the 6-bit scales
// of Q4_K and Q5_K. All multi-byte fields are little endian and unaligned. Source of the layouts:
// the GGUF Python package (gguf/quants.py) and specification.
//
//   Q4_0  32: f16 d; 16 bytes, element j in the low nibble of byte j, j + 16 in the high nibble
//             w = d * (q - 8)
//   Q4_1  32: f16 d, f16 m; nibbles as Q4_0                      w = d * q + m
//   Q5_0  32: f16 d; u32 fifth bits, bit j of element j; nibbles w = d * (q - 16)
//   Q8_0  32: f16 d; 32 int8                                     w = d * q
//   Q4_K 256: f16 d, f16 dmin; 12 bytes of 8 (scale, min) pairs of 6 bits; 128 bytes of nibbles:
//             each 32 bytes hold sub-blocks 2g (low) and 2g + 1 (high)
//             w = (d * scale) * q - dmin * min
//   Q5_K 256: as Q4_K with 32 bytes of fifth bits before the nibbles: bit s of byte j belongs to
//             element j of sub-block s
//   Q6_K 256: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales (one for 16
//             elements), f16 d. Per half of 128 elements, sub-block s in 0..3 of 32: low bits in
//             bytes 32 * (s % 2) + j, nibble s / 2; high bits in byte j, bits 2s
//             w = (d * scale) * (q - 32)
//
// Every product in these formulas is exact in float (11 bits of scale times at most 12 bits of
// integers), so only the final addition of Q4_1, Q4_K and Q5_K rounds: all implementations, with
// fused multiply-add or without, give the same bits.
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_LAYOUT_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_LAYOUT_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

struct BlockLayout {
  int32_t elements;
  int32_t bytes;
  int32_t quants;     // offset of the nibbles or bytes
  int32_t high_bits;  // offset of the bits above the nibble; 0 if the format has none
};

inline constexpr BlockLayout kQ4_0Layout{32, 18, 2, 0};
inline constexpr BlockLayout kQ4_1Layout{32, 20, 4, 0};
inline constexpr BlockLayout kQ5_0Layout{32, 22, 6, 2};
inline constexpr BlockLayout kQ8_0Layout{32, 34, 2, 0};
inline constexpr BlockLayout kQ4_KLayout{256, 144, 16, 0};
inline constexpr BlockLayout kQ5_KLayout{256, 176, 48, 16};
inline constexpr BlockLayout kQ6_KLayout{256, 210, 0, 128};

// Layout of a weight dtype; f32, bf16 and f16 count as blocks of one element.
constexpr BlockLayout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return kQ4_0Layout;
    case DType::kQ4_1:
      return kQ4_1Layout;
    case DType::kQ5_0:
      return kQ5_0Layout;
    case DType::kQ8_0:
      return kQ8_0Layout;
    case DType::kQ4_K:
      return kQ4_KLayout;
    case DType::kQ5_K:
      return kQ5_KLayout;
    case DType::kQ6_K:
      return kQ6_KLayout;
    case DType::kBF16:
    case DType::kF16:
      return {1, 2, 0, 0};
    default:
      return {1, 4, 0, 0};
  }
}

// Calls f.template operator()<dtype>() if `dtype` is a block format.
template <class F>
[[gnu::always_inline]] inline void WithBlockFormat(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kQ4_0:
      return f.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return f.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return f.template operator()<DType::kQ5_0>();
    case DType::kQ8_0:
      return f.template operator()<DType::kQ8_0>();
    case DType::kQ4_K:
      return f.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return f.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return f.template operator()<DType::kQ6_K>();
    default:
      return;
  }
}

// The same for all weight dtypes: block formats, f32, bf16 and f16.
template <class F>
[[gnu::always_inline]] inline void WithWeightFormat(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f.template operator()<DType::kF32>();
    case DType::kBF16:
      return f.template operator()<DType::kBF16>();
    case DType::kF16:
      return f.template operator()<DType::kF16>();
    default:
      return WithBlockFormat(dtype, f);
  }
}

inline constexpr int32_t kSubBlocksOfK = 8;       // in a block of 256
inline constexpr int32_t kQ45KScalesOffset = 4;   // 12 bytes of packed 6-bit pairs
inline constexpr int32_t kQ3KPairsOffset = 32;    // 64 bytes of low bit pairs
inline constexpr int32_t kQ3KScalesOffset = 96;   // 16 scales of 6 bits
inline constexpr int32_t kQ3KScaleOffset = 108;   // f16 d
inline constexpr int32_t kQ6KScalesOffset = 192;  // 16 int8
inline constexpr int32_t kQ6KScaleOffset = 208;   // f16 d

// Little-endian fields at any address. Always inlined, unlike those of cc/base/endian.h: decoders
// are compiled for several instruction sets, and the linker would keep only one copy of an inline
// function.
[[gnu::always_inline]] constexpr uint16_t LoadLe16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | (bytes[1] << 8));
}

[[gnu::always_inline]] constexpr uint32_t LoadLe32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) | (static_cast<uint32_t>(bytes[1]) << 8) |
         (static_cast<uint32_t>(bytes[2]) << 16) | (static_cast<uint32_t>(bytes[3]) << 24);
}

[[gnu::always_inline]] inline void StoreLe16(uint8_t* bytes, uint16_t value) {
  bytes[0] = static_cast<uint8_t>(value);
  bytes[1] = static_cast<uint8_t>(value >> 8);
}

// The 8 scales and 8 minima of Q4_K and Q5_K, one a byte: bytes 0..7 scales, 8..15 minima.
//
// In the file, byte i < 4 holds scale i (low 6 bits), byte 4 + i minimum i; their top two bits are
// the top bits of scale and minimum i + 4, whose low 4 bits share byte 8 + i (scale low, minimum
// high). Four bytes at a time in a 32-bit word; word order is that of the file on any CPU.
[[gnu::always_inline]] inline void UnpackScales6(const uint8_t* packed, uint32_t words[4]) {
  const uint32_t a = LoadLe32(packed);
  const uint32_t b = LoadLe32(packed + 4);
  const uint32_t c = LoadLe32(packed + 8);
  words[0] = a & 0x3f3f3f3fu;
  words[1] = (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u);
  words[2] = b & 0x3f3f3f3fu;
  words[3] = ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u);
}

// Scale s of 16 of a block of Q3_K, for elements 16 s .. 16 s + 15. Nibble s / 8 of byte s % 8 has
// its low bits, pair s / 4 of byte 8 + s % 4 its high ones; 32 is added to it.
[[gnu::always_inline]] constexpr int8_t Q3KScale(const uint8_t* block, int s) {
  const uint8_t* const packed = block + kQ3KScalesOffset;
  const int low = packed[s % 8] >> (s < 8 ? 0 : 4) & 15;
  const int high = packed[8 + s % 4] >> (2 * (s / 4)) & 3;
  return static_cast<int8_t>((low | high << 4) - 32);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_BLOCK_LAYOUT_H_
