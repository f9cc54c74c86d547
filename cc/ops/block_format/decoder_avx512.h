// File: cc/ops/block_format/decoder_avx512.h
// Decodes weight blocks to registers of 16 floats, with AVX-512 F, BW, DQ and VL. For files
// compiled for these instruction sets only.
//
//   using D = DecoderAvx512<DType::kQ4_1>;
//   D::State state;
//   D::Begin(block, &state);
//   __m512 w[D::kVectors];
//   D::Decode(state, 0, w);    // elements 0..31 of the block, in order
//
// Nibbles index a register that holds the 16 possible values of this block: one permutation
// replaces masking, conversion, multiplication and addition (VPERMPS reads the low four bits of
// each index only).
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/decoder.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] static inline

namespace pagemill::ops {

template <DType kDType>
struct DecoderAvx512;

namespace internal_avx512 {

PAGEMILL_INLINE __m512 Iota() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// The f16 at `from` in all lanes.
PAGEMILL_INLINE __m512 BroadcastF16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(LoadLe16(from))));
}

PAGEMILL_INLINE __m512i LoadBytes(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

PAGEMILL_INLINE __mmask16 FirstLanes(int count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}

}  // namespace internal_avx512

template <>
struct DecoderAvx512<DType::kF32> : PlainDecoder<DType::kF32, 16> {
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    *out = _mm512_loadu_ps(state.elements);
  }
  PAGEMILL_INLINE __m512 DecodePartial(const uint8_t* from, int count) {
    return _mm512_maskz_loadu_ps(internal_avx512::FirstLanes(count), from);
  }
};

template <>
struct DecoderAvx512<DType::kBF16> : PlainDecoder<DType::kBF16, 16> {
  PAGEMILL_INLINE __m512 Widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    *out = Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(state.elements)));
  }
  PAGEMILL_INLINE __m512 DecodePartial(const uint8_t* from, int count) {
    return Widen(_mm256_maskz_loadu_epi16(internal_avx512::FirstLanes(count), from));
  }
};

template <>
struct DecoderAvx512<DType::kF16> : PlainDecoder<DType::kF16, 16> {
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    *out = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(state.elements)));
  }
  PAGEMILL_INLINE __m512 DecodePartial(const uint8_t* from, int count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(internal_avx512::FirstLanes(count), from));
  }
};

template <>
struct DecoderAvx512<DType::kQ4_0> : DecoderSizes<DType::kQ4_0, 16> {
  struct State {
    __m512 table;
    const uint8_t* quants;
  };
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    const __m512 centred = _mm512_sub_ps(internal_avx512::Iota(), _mm512_set1_ps(8));
    state->table = _mm512_mul_ps(internal_avx512::BroadcastF16(block), centred);
    state->quants = block + kQ4_0Layout.quants;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    const __m512i bytes = internal_avx512::LoadBytes(state.quants);
    out[0] = _mm512_permutexvar_ps(bytes, state.table);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), state.table);
  }
};

template <>
struct DecoderAvx512<DType::kQ4_1> : DecoderSizes<DType::kQ4_1, 16> {
  using State = DecoderAvx512<DType::kQ4_0>::State;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    // Lanes d, m, d, m, ...: one conversion for both.
    const __m512 both = _mm512_cvtph_ps(_mm256_set1_epi32(static_cast<int32_t>(LoadLe32(block))));
    state->table = _mm512_fmadd_ps(_mm512_moveldup_ps(both), internal_avx512::Iota(),
                                   _mm512_movehdup_ps(both));
    state->quants = block + kQ4_1Layout.quants;
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m512* out) {
    DecoderAvx512<DType::kQ4_0>::Decode(state, part, out);
  }
};

template <>
struct DecoderAvx512<DType::kQ5_0> : DecoderSizes<DType::kQ5_0, 16> {
  struct State {
    __m512 low;   // values of nibbles without the fifth bit
    __m512 high;  // values of nibbles with it
    const uint8_t* block;
  };
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    const __m512 d = internal_avx512::BroadcastF16(block);
    state->high = _mm512_mul_ps(d, internal_avx512::Iota());
    state->low = _mm512_mul_ps(d, _mm512_sub_ps(internal_avx512::Iota(), _mm512_set1_ps(16)));
    state->block = block;
  }
  PAGEMILL_INLINE __m512 Look(const State& state, __m512i nibbles, uint32_t fifth) {
    return _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(nibbles, state.low),
                                      static_cast<__mmask16>(fifth), nibbles, state.high);
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    const uint32_t fifth = LoadLe32(state.block + kQ5_0Layout.high_bits);
    const __m512i bytes = internal_avx512::LoadBytes(state.block + kQ5_0Layout.quants);
    out[0] = Look(state, bytes, fifth & 0xffffu);
    out[1] = Look(state, _mm512_srli_epi32(bytes, 4), fifth >> 16);
  }
};

template <>
struct DecoderAvx512<DType::kQ8_0> : DecoderSizes<DType::kQ8_0, 16> {
  struct State {
    __m512 d;
    const uint8_t* quants;
  };
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    state->d = internal_avx512::BroadcastF16(block);
    state->quants = block + kQ8_0Layout.quants;
  }
  PAGEMILL_INLINE void Decode(const State& state, int, __m512* out) {
    for (int v = 0; v < 2; ++v) {
      const __m512i integers = _mm512_cvtepi8_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.quants + 16 * v)));
      out[v] = _mm512_mul_ps(state.d, _mm512_cvtepi32_ps(integers));
    }
  }
};

namespace internal_avx512 {

// Q4_K and Q5_K: 8 scales, then 8 minima.
struct SubBlockState {
  alignas(64) float scales[16];
  const uint8_t* block;
};

PAGEMILL_INLINE void BeginSubBlocks(const uint8_t* block, SubBlockState* state) {
  uint32_t words[4];
  UnpackScales6(block + kQ45KScalesOffset, words);
  const __m128i bytes = _mm_setr_epi32(static_cast<int>(words[0]), static_cast<int>(words[1]),
                                       static_cast<int>(words[2]), static_cast<int>(words[3]));
  // d in lanes 0..7, dmin in lanes 8..15.
  const __m512 factors =
      _mm512_cvtph_ps(_mm256_set_m128i(_mm_set1_epi16(static_cast<int16_t>(LoadLe16(block + 2))),
                                       _mm_set1_epi16(static_cast<int16_t>(LoadLe16(block)))));
  _mm512_store_ps(state->scales,
                  _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))));
  state->block = block;
}

}  // namespace internal_avx512

template <>
struct DecoderAvx512<DType::kQ4_K> : DecoderSizes<DType::kQ4_K, 16> {
  using State = internal_avx512::SubBlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    internal_avx512::BeginSubBlocks(block, state);
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m512* out) {
    const __m512 table =
        _mm512_fmsub_ps(_mm512_set1_ps(state.scales[part]), internal_avx512::Iota(),
                        _mm512_set1_ps(state.scales[part + 8]));
    const uint8_t* quants = state.block + kQ4_KLayout.quants + 32 * (part / 2);
    for (int v = 0; v < 2; ++v) {
      const __m512i bytes = internal_avx512::LoadBytes(quants + 16 * v);
      const __m512i nibbles = part % 2 == 0 ? bytes : _mm512_srli_epi32(bytes, 4);
      out[v] = _mm512_permutexvar_ps(nibbles, table);
    }
  }
};

template <>
struct DecoderAvx512<DType::kQ5_K> : DecoderSizes<DType::kQ5_K, 16> {
  using State = internal_avx512::SubBlockState;
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    internal_avx512::BeginSubBlocks(block, state);
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m512* out) {
    const __m512 scale = _mm512_set1_ps(state.scales[part]);
    const __m512 minimum = _mm512_set1_ps(state.scales[part + 8]);
    const __m512 low = _mm512_fmsub_ps(scale, internal_avx512::Iota(), minimum);
    const __m512 high =
        _mm512_fmsub_ps(scale, _mm512_add_ps(internal_avx512::Iota(), _mm512_set1_ps(16)), minimum);
    const uint8_t* quants = state.block + kQ5_KLayout.quants + 32 * (part / 2);
    const uint8_t* fifths = state.block + kQ5_KLayout.high_bits;
    for (int v = 0; v < 2; ++v) {
      const __m512i bytes = internal_avx512::LoadBytes(quants + 16 * v);
      const __m512i nibbles = part % 2 == 0 ? bytes : _mm512_srli_epi32(bytes, 4);
      const __mmask16 fifth =
          _mm_test_epi8_mask(_mm_loadu_si128(reinterpret_cast<const __m128i*>(fifths + 16 * v)),
                             _mm_set1_epi8(static_cast<char>(1 << part)));
      out[v] =
          _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(nibbles, low), fifth, nibbles, high);
    }
  }
};

template <>
struct DecoderAvx512<DType::kQ6_K> : DecoderSizes<DType::kQ6_K, 16> {
  struct State {
    alignas(64) float scales[16];  // one for 16 elements
    const uint8_t* block;
  };
  PAGEMILL_INLINE void Begin(const uint8_t* block, State* state) {
    const __m512i integers = _mm512_cvtepi8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + kQ6KScalesOffset)));
    _mm512_store_ps(state->scales,
                    _mm512_mul_ps(internal_avx512::BroadcastF16(block + kQ6KScaleOffset),
                                  _mm512_cvtepi32_ps(integers)));
    state->block = block;
  }
  PAGEMILL_INLINE void Decode(const State& state, int part, __m512* out) {
    const int half = part / 4;
    const int sub = part % 4;
    const uint8_t* quants = state.block + 64 * half + 32 * (sub % 2);
    const uint8_t* pairs = state.block + kQ6_KLayout.high_bits + 32 * half;
    for (int v = 0; v < 2; ++v) {
      const __m512i low = _mm512_and_si512(
          _mm512_srli_epi32(internal_avx512::LoadBytes(quants + 16 * v), 4 * (sub / 2)),
          _mm512_set1_epi32(15));
      const __m512i high = internal_avx512::LoadBytes(pairs + 16 * v);
      const __m512i moved =
          sub < 2 ? _mm512_slli_epi32(high, 4 - 2 * sub) : _mm512_srli_epi32(high, 2 * sub - 4);
      // low | (moved & 0x30)
      const __m512i bits = _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi32(0x30), 0xf8);
      const __m512 centred = _mm512_cvtepi32_ps(_mm512_sub_epi32(bits, _mm512_set1_epi32(32)));
      out[v] = _mm512_mul_ps(_mm512_set1_ps(state.scales[2 * part + v]), centred);
    }
  }
};

}  // namespace pagemill::ops

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_AVX512_H_
