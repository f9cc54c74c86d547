// File: cc/ops/linear/float_lanes.h
// Constants and functions of an instruction set for the loops of linear_float.cc, besides `Vec`
// (cc/ops/vec/vec.h):
//
//   kDirectN             rows of x of the direct path's register tile: 2 or 4
//   kMaxDirectN          largest number of rows of x for which the direct path is faster
//   kTileN               rows of x of the largest register tile
//   Sum4(v)              sums of the lanes of four vectors, in a fixed order
//   FloatDecoder<DType>  kElements of a block in kBytes: State Begin(block), then
//                        Decode(state, part, out[kVectors]) for each of kParts parts;
//                        if kRowsMayEndInside a block, DecodePartial(p, count) gives one vector of
//                        count <= kLanes elements
//
// For sources of vec_cc_library() only: everything has internal linkage.
#ifndef PAGEMILL_CC_OPS_LINEAR_FLOAT_LANES_H_
#define PAGEMILL_CC_OPS_LINEAR_FLOAT_LANES_H_

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/vec/vec.h"
#include "cc/tensor/dtype.h"

#if defined(PAGEMILL_VEC_AVX512)
#include "cc/ops/block_format/decoder_avx512.h"
#elif defined(PAGEMILL_VEC_AVX2)
#include "cc/ops/block_format/decoder_avx2.h"
#else
#include "cc/ops/block_format/decoder_portable.h"
#endif

namespace pagemill::ops::linear {
namespace {

using Float4 = float __attribute__((vector_size(16)));

constexpr int kTileM = 4;  // weight rows of a register tile: operands of Sum4

#if defined(PAGEMILL_VEC_AVX512)

constexpr int64_t kDirectN = 4;
constexpr int64_t kMaxDirectN = 8;
constexpr int kTileN = 6;  // 32 registers: 24 sums and their operands
template <DType kDType>
using FloatDecoder = DecoderAvx512<kDType>;

// [a.low + a.high, b.low + b.high], halves of 256 bits.
inline Vec::F AddHalves(Vec::F a, Vec::F b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

// Lanes (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
inline Float4 Sum4(const Vec::F v[4]) {
  const Vec::F a = AddHalves(v[0], v[1]);
  const Vec::F b = AddHalves(v[2], v[3]);
  // 128-bit lane i belongs to v[i].
  Vec::F s = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
  const __m512i first_of_each = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_each, s));
}

#elif defined(PAGEMILL_VEC_AVX2)

constexpr int64_t kDirectN = 2;
constexpr int64_t kMaxDirectN = 4;
constexpr int kTileN = 3;  // 16 registers: 12 sums and their operands
template <DType kDType>
using FloatDecoder = DecoderAvx2<kDType>;

// Lanes (i, i + 4), then (i, i + 1), then the two pairs.
inline Float4 Sum4(const Vec::F v[4]) {
  __m128 halves[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    halves[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
  }
  return _mm_hadd_ps(_mm_hadd_ps(halves[0], halves[1]), _mm_hadd_ps(halves[2], halves[3]));
}

#else

constexpr int64_t kDirectN = 2;
constexpr int64_t kMaxDirectN = 2;
// 16 registers: 8 sums and their operands; 32 registers: 16 sums.
constexpr int kTileN = Vec::kRegisters == 16 ? 2 : 4;

// Lanes (0, 2) and (1, 3), then the two pairs.
inline Float4 Sum4(const Vec::F v[4]) {
  Float4 out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) out[i] = (v[i][0] + v[i][2]) + (v[i][1] + v[i][3]);
  return out;
}

// A block is decoded to memory by vectorised loops, then read back a vector at a time.
template <DType kDType>
struct FloatDecoder {
  static constexpr bool kPlain =
      kDType == DType::kF32 || kDType == DType::kBF16 || kDType == DType::kF16;
  static constexpr bool kRowsMayEndInside = kPlain;
  static constexpr int kBlocks = kPlain ? 16 : 1;
  static constexpr int kBlockElements = LayoutOf(kDType).elements;
  static constexpr int kBlockBytes = LayoutOf(kDType).bytes;
  static constexpr int kElements = kBlocks * kBlockElements;
  static constexpr int kBytes = kBlocks * kBlockBytes;
  static constexpr int kVectors = 1;
  static constexpr int kParts = kElements / Vec::kLanes;
  struct State {
    alignas(16) float weights[kElements];
  };
  static void Begin(const uint8_t* block, State* state) {
    if constexpr (kPlain) {
      for (int i = 0; i < kBlocks; ++i) {
        DecodeBlock<kDType>(block + i * kBlockBytes, state->weights + i);
      }
    } else {
      DecodeOutOfLine(block, state->weights);
    }
  }
  // A call for 32 or 256 elements costs little. Inlined for each of four rows, the loops of the
  // formats take GCC minutes and a gigabyte to compile for s390x.
  [[gnu::noinline]] static void DecodeOutOfLine(const uint8_t* __restrict block,
                                                float* __restrict out) {
    DecodeBlock<kDType>(block, out);
  }
  static void Decode(const State& state, int part, Vec::F* out) {
    *out = Vec::Load(state.weights + part * Vec::kLanes);
  }
  static Vec::F DecodePartial(const uint8_t* from, int count) {
    float lanes[Vec::kLanes] = {};
    for (int i = 0; i < count; ++i) DecodeBlock<kDType>(from + i * kBlockBytes, lanes + i);
    return Vec::Load(lanes);
  }
};

#endif

}  // namespace
}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_FLOAT_LANES_H_
