// File: cc/ops/block_format/decoder_avx512_vnni.h
// Weight blocks to unsigned bytes and scales, as VPDPBUSD takes them, with AVX-512 F, BW, DQ and
// VL. For files compiled for that instruction set only.
//
// Unit of work: a group of 128 elements (4 blocks of 32) of 4 weight rows. A register of bytes
// holds one row: its 128-bit lane j has 16 elements of block j, `a` the first and `b` the last. A
// register of 32-bit values holds all: element 4 * j + r is block j of row r. Within a block,
//
//   w = scale * (byte - kZeroPoint)                                              no minimum
//   w = scale * byte + minimum                                                   kHasMinimum
//   w = scale * scale_of_half * (byte - kZeroPoint)                              kHasHalfScales
//
//   using D = ByteDecoder<DType::kQ4_1>;
//   ByteGroup g;
//   D::Decode<true>(rows, 3, 4, &g);    // elements 384..511 of the four rows
//
// Signed weights (Q8_0) become unsigned by flipping the sign bit: a zero point of 128.
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_VNNI_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_VNNI_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/dtype.h"

#define PM_INLINE [[gnu::always_inline]] static inline

namespace pagemill::ops {

struct ByteGroup {
  __m512i a[4];  // of each row
  __m512i b[4];
  __m512 scale;
  __m512 minimum;   // where kHasMinimum
  __m512i a_scale;  // where kHasHalfScales: int32
  __m512i b_scale;
};

// Decode<kFull>(rows, group, blocks, out): the group of `blocks` blocks; 4 where kFull. Blocks that
// are missing at the end of a row get scale 0 and are not read.
template <DType kDType>
struct ByteDecoder;

namespace internal_vnni {

template <bool kFull>
PM_INLINE __m512i Load64(const uint8_t* from, int64_t available) {
  if constexpr (kFull) return _mm512_loadu_si512(from);
  const uint32_t bytes = available < 0 ? 0 : available > 64 ? 64 : static_cast<uint32_t>(available);
  return _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, bytes), from);
}

template <bool kFull>
PM_INLINE __m256i Load32(const uint8_t* from, int64_t available) {
  if constexpr (kFull) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const uint32_t bytes = available < 0 ? 0 : available > 32 ? 32 : static_cast<uint32_t>(available);
  return _mm256_maskz_loadu_epi8(_bzhi_u32(~0u, bytes), from);
}

// 32 indices of 16-bit words: for VPERMI2W over two loads, of bytes [0, 64) and of the last 64.
struct alignas(64) WordTable {
  uint16_t words[32];
};

// Word `word` of the 4 blocks, as an index into the two loads.
constexpr uint16_t WordIndex(int word, int group_bytes) {
  return static_cast<uint16_t>(word < 32 ? word : word - (group_bytes - 64) / 2 + 32);
}

// The 16 bytes of nibbles of each block.
constexpr WordTable QuantWords(BlockLayout layout) {
  WordTable table{};
  for (int i = 0; i < 32; ++i) {
    table.words[i] =
        WordIndex(i / 8 * layout.bytes / 2 + layout.quants / 2 + i % 8, 4 * layout.bytes);
  }
  return table;
}

// Words 0 (scale) in elements 4 * j + r, words 1 in elements 16 + 4 * j + r, for all r.
constexpr WordTable HeadWords(BlockLayout layout) {
  WordTable table{};
  for (int i = 0; i < 32; ++i) {
    table.words[i] = WordIndex(i % 16 / 4 * layout.bytes / 2 + i / 16, 4 * layout.bytes);
  }
  return table;
}

PM_INLINE __m512i Nibbles(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }

// Q4_0, Q4_1 and Q5_0 but for its fifth bits: nibbles, and words 0 and 1 of all blocks as floats.
template <bool kFull>
PM_INLINE void DecodeNibbles(const BlockLayout& layout, const WordTable& quant_words,
                             const WordTable& head_words, const uint8_t* const rows[4],
                             int64_t group, int blocks, ByteGroup* out) {
  const __m512i quants_at = _mm512_load_si512(&quant_words);
  const __m512i heads_at = _mm512_load_si512(&head_words);
  const int64_t group_bytes = 4 * layout.bytes;
  const int64_t available = blocks * layout.bytes;
  __m512i heads = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const uint8_t* from = rows[r] + group * group_bytes;
    const __m512i first = Load64<kFull>(from, available);
    const __m512i last = Load64<kFull>(from + group_bytes - 64, available - (group_bytes - 64));
    const __m512i bytes = _mm512_permutex2var_epi16(first, quants_at, last);
    out->a[r] = Nibbles(bytes);
    out->b[r] = Nibbles(_mm512_srli_epi16(bytes, 4));
    const __mmask32 of_row = 0x11111111u << r;
    heads = group_bytes <= 80 ? _mm512_mask_permutexvar_epi16(heads, of_row, heads_at, first)
                              : _mm512_or_si512(heads, _mm512_maskz_permutex2var_epi16(
                                                           of_row, first, heads_at, last));
  }
  out->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(heads));
  out->minimum = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(heads, 1));
}

}  // namespace internal_vnni

template <>
struct ByteDecoder<DType::kQ4_0> {
  static constexpr int kZeroPoint = 8;
  static constexpr bool kHasMinimum = false, kHasHalfScales = false;
  static constexpr int kGroupBytes = 4 * kQ4_0Layout.bytes;
  static constexpr internal_vnni::WordTable kQuants = internal_vnni::QuantWords(kQ4_0Layout);
  static constexpr internal_vnni::WordTable kHeads = internal_vnni::HeadWords(kQ4_0Layout);
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int blocks, ByteGroup* out) {
    internal_vnni::DecodeNibbles<kFull>(kQ4_0Layout, kQuants, kHeads, rows, group, blocks, out);
  }
};

template <>
struct ByteDecoder<DType::kQ4_1> {
  static constexpr int kZeroPoint = 0;
  static constexpr bool kHasMinimum = true, kHasHalfScales = false;
  static constexpr int kGroupBytes = 4 * kQ4_1Layout.bytes;
  static constexpr internal_vnni::WordTable kQuants = internal_vnni::QuantWords(kQ4_1Layout);
  static constexpr internal_vnni::WordTable kHeads = internal_vnni::HeadWords(kQ4_1Layout);
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int blocks, ByteGroup* out) {
    internal_vnni::DecodeNibbles<kFull>(kQ4_1Layout, kQuants, kHeads, rows, group, blocks, out);
  }
};

template <>
struct ByteDecoder<DType::kQ5_0> {
  static constexpr int kZeroPoint = 16;
  static constexpr bool kHasMinimum = false, kHasHalfScales = false;
  static constexpr int kGroupBytes = 4 * kQ5_0Layout.bytes;
  static constexpr internal_vnni::WordTable kQuants = internal_vnni::QuantWords(kQ5_0Layout);
  static constexpr internal_vnni::WordTable kHeads = internal_vnni::HeadWords(kQ5_0Layout);
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int blocks, ByteGroup* out) {
    internal_vnni::DecodeNibbles<kFull>(kQ5_0Layout, kQuants, kHeads, rows, group, blocks, out);
    const __m512i fifth = _mm512_set1_epi8(16);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const uint8_t* bits = rows[r] + group * kGroupBytes + kQ5_0Layout.high_bits;
      uint64_t a = 0;
      uint64_t b = 0;
#pragma GCC unroll 4
      for (int j = 0; j < (kFull ? 4 : blocks); ++j) {
        const uint64_t of_block = LoadLe32(bits + j * kQ5_0Layout.bytes);
        a |= (of_block & 0xffff) << (16 * j);
        b |= (of_block >> 16) << (16 * j);
      }
      out->a[r] = _mm512_mask_add_epi8(out->a[r], a, out->a[r], fifth);
      out->b[r] = _mm512_mask_add_epi8(out->b[r], b, out->b[r], fifth);
    }
  }
};

template <>
struct ByteDecoder<DType::kQ8_0> {
  static constexpr int kZeroPoint = 128;
  static constexpr bool kHasMinimum = false, kHasHalfScales = false;
  static constexpr int kBytes = kQ8_0Layout.bytes;
  static constexpr int kGroupBytes = 4 * kBytes;
  template <bool kFull>
  PM_INLINE __m512i Pair(const uint8_t* block, int64_t available) {
    const __m256i low = internal_vnni::Load32<kFull>(block + 2, available - 2);
    const __m256i high = internal_vnni::Load32<kFull>(block + kBytes + 2, available - kBytes - 2);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int blocks, ByteGroup* out) {
    // Scales are words 0 and 17 of the 64 bytes at each pair of blocks.
    const __m256i heads_at =
        _mm256_setr_epi16(0, 0, 0, 0, 17, 17, 17, 17, 32, 32, 32, 32, 49, 49, 49, 49);
    const __m512i sign = _mm512_set1_epi8(-128);
    const int64_t available = blocks * kBytes;
    __m512i heads = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const uint8_t* from = rows[r] + group * kGroupBytes;
      const __m512i first = Pair<kFull>(from, available);
      const __m512i second = Pair<kFull>(from + 2 * kBytes, available - 2 * kBytes);
      out->a[r] = _mm512_xor_si512(_mm512_shuffle_i64x2(first, second, 0x88), sign);
      out->b[r] = _mm512_xor_si512(_mm512_shuffle_i64x2(first, second, 0xdd), sign);
      heads = _mm512_or_si512(
          heads, _mm512_maskz_permutex2var_epi16(
                     0x1111u << r, internal_vnni::Load64<kFull>(from, available),
                     _mm512_castsi256_si512(heads_at),
                     internal_vnni::Load64<kFull>(from + 2 * kBytes, available - 2 * kBytes)));
    }
    out->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(heads));
  }
};

namespace internal_vnni {

// Bytes [r][j] of the four rows to 32-bit values in element 4 * j + r.
PM_INLINE __m128i TransposeBytes(__m128i rows) {
  return _mm_shuffle_epi8(rows,
                          _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// The f16 at `offset` of each row's block, row r in elements 4 * j + r.
PM_INLINE __m512 RowScales(const uint8_t* const blocks[4], int offset) {
  uint64_t packed = 0;
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    packed |= static_cast<uint64_t>(LoadLe16(blocks[r] + offset)) << (16 * r);
  }
  return _mm512_broadcast_f32x4(_mm_cvtph_ps(_mm_cvtsi64_si128(static_cast<long long>(packed))));
}

// Q4_K, and Q5_K but for its fifth bits.
PM_INLINE void DecodeSubBlocks(const uint8_t* const blocks[4], int half, int quants,
                               ByteGroup* out) {
  uint32_t scales[4];
  uint32_t minima[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    uint32_t words[4];
    UnpackScales6(blocks[r] + kQ45KScalesOffset, words);
    scales[r] = words[half];
    minima[r] = words[2 + half];
    const __m512i bytes = _mm512_loadu_si512(blocks[r] + quants + 64 * half);
    // Lanes: sub-blocks 0, 0, 2, 2 in the low nibbles, 1, 1, 3, 3 in the high ones.
    const __m512i low = Nibbles(bytes);
    const __m512i high = Nibbles(_mm512_srli_epi16(bytes, 4));
    out->a[r] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), high);
    out->b[r] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), high);
  }
  const __m128i s = TransposeBytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  const __m128i m = TransposeBytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(minima)));
  out->scale = _mm512_mul_ps(RowScales(blocks, 0), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(s)));
  // Exact, sign included: 0 - x would give +0 for 0, which multiplies alike.
  out->minimum = _mm512_mul_ps(
      RowScales(blocks, 2),
      _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_cvtepu8_epi32(m))));
}

template <int kBytes>
PM_INLINE void BlocksOf256(const uint8_t* const rows[4], int64_t group, const uint8_t* blocks[4]) {
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) blocks[r] = rows[r] + group / 2 * kBytes;
}

}  // namespace internal_vnni

template <>
struct ByteDecoder<DType::kQ4_K> {
  static constexpr int kZeroPoint = 0;
  static constexpr bool kHasMinimum = true, kHasHalfScales = false;
  static constexpr int kGroupBytes = kQ4_KLayout.bytes / 2;
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int, ByteGroup* out) {
    const uint8_t* blocks[4];
    internal_vnni::BlocksOf256<kQ4_KLayout.bytes>(rows, group, blocks);
    internal_vnni::DecodeSubBlocks(blocks, group % 2, kQ4_KLayout.quants, out);
  }
};

template <>
struct ByteDecoder<DType::kQ5_K> {
  static constexpr int kZeroPoint = 0;
  static constexpr bool kHasMinimum = true, kHasHalfScales = false;
  static constexpr int kGroupBytes = kQ5_KLayout.bytes / 2;
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int, ByteGroup* out) {
    const uint8_t* blocks[4];
    internal_vnni::BlocksOf256<kQ5_KLayout.bytes>(rows, group, blocks);
    const int half = group % 2;
    internal_vnni::DecodeSubBlocks(blocks, half, kQ5_KLayout.quants, out);
    // Lane j is sub-block 4 * half + j: that bit of the 16 bytes common to all lanes.
    const __m512i first_bits = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi8(2), _mm_set1_epi8(1))),
        _mm256_set_m128i(_mm_set1_epi8(8), _mm_set1_epi8(4)), 1);
    const __m512i bit = _mm512_sll_epi16(first_bits, _mm_cvtsi32_si128(4 * half));
    const __m512i fifth = _mm512_set1_epi8(16);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const __m128i* bits = reinterpret_cast<const __m128i*>(blocks[r] + kQ5_KLayout.high_bits);
      const __m512i a = _mm512_broadcast_i32x4(_mm_loadu_si128(bits));
      const __m512i b = _mm512_broadcast_i32x4(_mm_loadu_si128(bits + 1));
      out->a[r] = _mm512_mask_add_epi8(out->a[r], _mm512_test_epi8_mask(a, bit), out->a[r], fifth);
      out->b[r] = _mm512_mask_add_epi8(out->b[r], _mm512_test_epi8_mask(b, bit), out->b[r], fifth);
    }
  }
};

template <>
struct ByteDecoder<DType::kQ6_K> {
  static constexpr int kZeroPoint = 32;
  static constexpr bool kHasMinimum = false, kHasHalfScales = true;
  static constexpr int kGroupBytes = kQ6_KLayout.bytes / 2;
  // Bits 2j, 2j + 1 of 16 bytes common to all lanes, moved to bits 4 and 5, in lane j.
  PM_INLINE __m512i HighBits(const uint8_t* pairs) {
    const __m512i all =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs)));
    const __m512i by =
        _mm512_setr_epi64(0, 0, 0x0002000200020002, 0x0002000200020002, 0x0004000400040004,
                          0x0004000400040004, 0x0006000600060006, 0x0006000600060006);
    const __m512i low_two = _mm512_and_si512(_mm512_srlv_epi16(all, by), _mm512_set1_epi8(3));
    return _mm512_slli_epi16(low_two, 4);
  }
  template <bool kFull>
  PM_INLINE void Decode(const uint8_t* const rows[4], int64_t group, int, ByteGroup* out) {
    const uint8_t* blocks[4];
    internal_vnni::BlocksOf256<kQ6_KLayout.bytes>(rows, group, blocks);
    const int half = group % 2;
    uint64_t scales[4];  // bytes a, b of sub-blocks 0..3
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const uint8_t* block = blocks[r];
      __builtin_memcpy(&scales[r], block + kQ6KScalesOffset + 8 * half, 8);
      const __m512i bytes = _mm512_loadu_si512(block + 64 * half);
      const __m512i low = internal_vnni::Nibbles(bytes);
      const __m512i high = internal_vnni::Nibbles(_mm512_srli_epi16(bytes, 4));
      const uint8_t* pairs = block + kQ6_KLayout.high_bits + 32 * half;
      out->a[r] = _mm512_or_si512(_mm512_shuffle_i64x2(low, high, 0x88), HighBits(pairs));
      out->b[r] = _mm512_or_si512(_mm512_shuffle_i64x2(low, high, 0xdd), HighBits(pairs + 16));
    }
    // Bytes [r][j][ab], two rows a register, to [ab][r][j], then as for Q4_K.
    const __m128i split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i* from = reinterpret_cast<const __m128i*>(scales);
    const __m128i first = _mm_shuffle_epi8(_mm_loadu_si128(from), split);
    const __m128i last = _mm_shuffle_epi8(_mm_loadu_si128(from + 1), split);
    out->a_scale =
        _mm512_cvtepi8_epi32(internal_vnni::TransposeBytes(_mm_unpacklo_epi64(first, last)));
    out->b_scale =
        _mm512_cvtepi8_epi32(internal_vnni::TransposeBytes(_mm_unpackhi_epi64(first, last)));
    out->scale = internal_vnni::RowScales(blocks, kQ6KScaleOffset);
  }
};

}  // namespace pagemill::ops

#undef PM_INLINE

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_VNNI_H_
