// File: cc/ops/block_format/decoder_avx2.h
// Decodes weight blocks to registers of 8 floats, with AVX2, FMA and F16C. For files compiled for
// these instruction sets only. The interface is that of decoder.h.
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX2_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX2_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/decoder.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] static inline

namespace pagemill::ops {

template <DType kDType>
struct DecoderAvx2;

namespace internal_avx2 {

PAGEMILL_INLINE float LoadF16(const uint8_t* from) { return _cvtsh_ss(LoadLe16(from)); }

PAGEMILL_INLINE __m128i LoadBytes(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// The low nibbles of 16 bytes (kShift 0) or the high ones (kShift 4), as bytes.
PAGEMILL_INLINE __m128i Nibbles(__m128i bytes, int shift) {
  return _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8(15));
}

// 16 signed bytes as two vectors of floats.
PAGEMILL_INLINE void Widen(__m128i bytes, __m256* out) {
  out[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  out[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)));
}

// Byte j of 16 is 16 if bit j of `bits` is set, else 0.
PAGEMILL_INLINE __m128i SixteenWhereSet(uint32_t bits) {
  const __m128i spread =
      _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bits)),
                       _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  const __m128i select = _mm_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m128i set = _mm_cmpeq_epi8(_mm_and_si128(spread, select), select);
  return _mm_and_si128(set, _mm_set1_epi8(16));
}

// The first `count` elements of a register, and zeros.
template <class Decoder>
PAGEMILL_INLINE __m256 DecodeFirst(const uint8_t* from, int count) {
  uint8_t elements[Decoder::kBytes] = {};
  std::memcpy(elements, from, Decoder::kBytes / Decoder::kElements * count);
  __m256 out;
  Decoder::Decode({elements}, 0, &out);
  return out;
}

struct BlockState {
  __m256 d;
  __m256 m;
  const uint8_t* block;
};

// d * v of four vectors.
PAGEMILL_INLINE void Scale(__m256 d, __m256* v) {
  for (int i = 0; i < 4; ++i) v[i] = _mm256_mul_ps(d, v[i]);
}

}  // namespace internal_avx2

template <>
struct DecoderAvx2<DType::kF32> : PlainDecoder<DType::kF32, 8> {
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    *out = _mm256_loadu_ps(reinterpret_cast<const float*>(state.elements));
  }
  PAGEMILL_INLINE __m256 DecodePartial(const uint8_t* from, int count) {
    return internal_avx2::DecodeFirst<DecoderAvx2>(from, count);
  }
};

template <>
struct DecoderAvx2<DType::kBF16> : PlainDecoder<DType::kBF16, 8> {
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    const __m256i words = _mm256_cvtepu16_epi32(internal_avx2::LoadBytes(state.elements));
    *out = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  PAGEMILL_INLINE __m256 DecodePartial(const uint8_t* from, int count) {
    return internal_avx2::DecodeFirst<DecoderAvx2>(from, count);
  }
};

template <>
struct DecoderAvx2<DType::kF16> : PlainDecoder<DType::kF16, 8> {
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    *out = _mm256_cvtph_ps(internal_avx2::LoadBytes(state.elements));
  }
  PAGEMILL_INLINE __m256 DecodePartial(const uint8_t* from, int count) {
    return internal_avx2::DecodeFirst<DecoderAvx2>(from, count);
  }
};

template <>
struct DecoderAvx2<DType::kQ4_0> : DecoderSizes<DType::kQ4_0, 8> {
  using State = internal_avx2::BlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    state->d = _mm256_set1_ps(internal_avx2::LoadF16(block));
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    const __m128i bytes = internal_avx2::LoadBytes(state.block + kQ4_0Layout.quants);
    const __m128i eight = _mm_set1_epi8(8);
    internal_avx2::Widen(_mm_sub_epi8(internal_avx2::Nibbles(bytes, 0), eight), out);
    internal_avx2::Widen(_mm_sub_epi8(internal_avx2::Nibbles(bytes, 4), eight), out + 2);
    internal_avx2::Scale(state.d, out);
  }
};

template <>
struct DecoderAvx2<DType::kQ4_1> : DecoderSizes<DType::kQ4_1, 8> {
  using State = internal_avx2::BlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    state->d = _mm256_set1_ps(internal_avx2::LoadF16(block));
    state->m = _mm256_set1_ps(internal_avx2::LoadF16(block + 2));
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    const __m128i bytes = internal_avx2::LoadBytes(state.block + kQ4_1Layout.quants);
    internal_avx2::Widen(internal_avx2::Nibbles(bytes, 0), out);
    internal_avx2::Widen(internal_avx2::Nibbles(bytes, 4), out + 2);
    for (int i = 0; i < 4; ++i) out[i] = _mm256_fmadd_ps(state.d, out[i], state.m);
  }
};

template <>
struct DecoderAvx2<DType::kQ5_0> : DecoderSizes<DType::kQ5_0, 8> {
  using State = internal_avx2::BlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    state->d = _mm256_set1_ps(internal_avx2::LoadF16(block));
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    const uint32_t fifth = LoadLe32(state.block + kQ5_0Layout.high_bits);
    const __m128i bytes = internal_avx2::LoadBytes(state.block + kQ5_0Layout.quants);
    for (int half = 0; half < 2; ++half) {
      const __m128i bits = _mm_or_si128(internal_avx2::Nibbles(bytes, 4 * half),
                                        internal_avx2::SixteenWhereSet(fifth >> (16 * half)));
      internal_avx2::Widen(_mm_sub_epi8(bits, _mm_set1_epi8(16)), out + 2 * half);
    }
    internal_avx2::Scale(state.d, out);
  }
};

template <>
struct DecoderAvx2<DType::kQ8_0> : DecoderSizes<DType::kQ8_0, 8> {
  using State = internal_avx2::BlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    state->d = _mm256_set1_ps(internal_avx2::LoadF16(block));
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m256* out) {
    const uint8_t* quants = state.block + kQ8_0Layout.quants;
    internal_avx2::Widen(internal_avx2::LoadBytes(quants), out);
    internal_avx2::Widen(internal_avx2::LoadBytes(quants + 16), out + 2);
    internal_avx2::Scale(state.d, out);
  }
};

namespace internal_avx2 {

struct SubBlockState {
  alignas(32) float scales[16];  // of Q4_K and Q5_K: 8 scales, then 8 minima; of Q6_K: 16 scales
  const uint8_t* block;
};

PAGEMILL_INLINE void BeginSubBlocks(const uint8_t* block, SubBlockState* state) {
  uint32_t words[4];
  UnpackScales6(block + kQ45KScalesOffset, words);
  const __m128i bytes = _mm_setr_epi32(static_cast<int>(words[0]), static_cast<int>(words[1]),
                                       static_cast<int>(words[2]), static_cast<int>(words[3]));
  __m256 integers[2];
  Widen(bytes, integers);  // at most 63: the sign bit is clear
  for (int i = 0; i < 2; ++i) {
    const __m256 factor = _mm256_set1_ps(LoadF16(block + 2 * i));
    _mm256_store_ps(state->scales + 8 * i, _mm256_mul_ps(factor, integers[i]));
  }
  state->block = block;
}

// 32 bytes of integers to scale * q - minimum of sub-block `part`.
PAGEMILL_INLINE void ApplySubBlock(const SubBlockState& state, int part, const __m128i quants[2],
                                   __m256* out) {
  const __m256 scale = _mm256_set1_ps(state.scales[part]);
  const __m256 minimum = _mm256_set1_ps(state.scales[part + 8]);
  Widen(quants[0], out);
  Widen(quants[1], out + 2);
  for (int i = 0; i < 4; ++i) out[i] = _mm256_fmsub_ps(scale, out[i], minimum);
}

}  // namespace internal_avx2

template <>
struct DecoderAvx2<DType::kQ4_K> : DecoderSizes<DType::kQ4_K, 8> {
  using State = internal_avx2::SubBlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    internal_avx2::BeginSubBlocks(block, state);
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m256* out) {
    const uint8_t* quants = state.block + kQ4_KLayout.quants + 32 * (part / 2);
    __m128i bits[2];
    for (int v = 0; v < 2; ++v) {
      bits[v] = internal_avx2::Nibbles(internal_avx2::LoadBytes(quants + 16 * v), 4 * (part % 2));
    }
    internal_avx2::ApplySubBlock(state, part, bits, out);
  }
};

template <>
struct DecoderAvx2<DType::kQ5_K> : DecoderSizes<DType::kQ5_K, 8> {
  using State = internal_avx2::SubBlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    internal_avx2::BeginSubBlocks(block, state);
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m256* out) {
    const uint8_t* quants = state.block + kQ5_KLayout.quants + 32 * (part / 2);
    const uint8_t* fifths = state.block + kQ5_KLayout.high_bits;
    const __m128i select = _mm_set1_epi8(static_cast<char>(1 << part));
    __m128i bits[2];
    for (int v = 0; v < 2; ++v) {
      const __m128i nibbles =
          internal_avx2::Nibbles(internal_avx2::LoadBytes(quants + 16 * v), 4 * (part % 2));
      const __m128i set =
          _mm_cmpeq_epi8(_mm_and_si128(internal_avx2::LoadBytes(fifths + 16 * v), select), select);
      bits[v] = _mm_or_si128(nibbles, _mm_and_si128(set, _mm_set1_epi8(16)));
    }
    internal_avx2::ApplySubBlock(state, part, bits, out);
  }
};

template <>
struct DecoderAvx2<DType::kQ6_K> : DecoderSizes<DType::kQ6_K, 8> {
  using State = internal_avx2::SubBlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    __m256 integers[2];
    internal_avx2::Widen(internal_avx2::LoadBytes(block + kQ6KScalesOffset), integers);
    const __m256 d = _mm256_set1_ps(internal_avx2::LoadF16(block + kQ6KScaleOffset));
    for (int i = 0; i < 2; ++i) {
      _mm256_store_ps(state->scales + 8 * i, _mm256_mul_ps(d, integers[i]));
    }
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m256* out) {
    const int half = part / 4;
    const int sub = part % 4;
    const uint8_t* quants = state.block + 64 * half + 32 * (sub % 2);
    const uint8_t* pairs = state.block + kQ6_KLayout.high_bits + 32 * half;
    for (int v = 0; v < 2; ++v) {
      const __m128i low =
          internal_avx2::Nibbles(internal_avx2::LoadBytes(quants + 16 * v), 4 * (sub / 2));
      const __m128i pair = _mm_and_si128(
          _mm_srli_epi16(internal_avx2::LoadBytes(pairs + 16 * v), 2 * sub), _mm_set1_epi8(3));
      const __m128i bits = _mm_or_si128(low, _mm_slli_epi16(pair, 4));
      internal_avx2::Widen(_mm_sub_epi8(bits, _mm_set1_epi8(32)), out + 2 * v);
      const __m256 scale = _mm256_set1_ps(state.scales[2 * part + v]);
      for (int i = 0; i < 2; ++i) out[2 * v + i] = _mm256_mul_ps(scale, out[2 * v + i]);
    }
  }
};

}  // namespace pagemill::ops

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX2_H_
