// File: cc/ops/paged_attention/attention_dot_order_inl.h
// Sums of products of pairs of bf16 by AVX512-BF16, in its own order or in that of AMX's tiles, so
// that few rows may be left to vectors where others are computed in tiles, bit for bit alike.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOT_ORDER_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOT_ORDER_INL_H_

#include <immintrin.h>

namespace pagemill::ops {
namespace {

enum class DotOrder {
  kPairs,  // one chain, pair after pair
  kTiles,  // of each 32 elements a chain of the even and one of the odd ones (tile_band.h)
};

constexpr int kPairsPerBlock = 16;  // of kTiles

inline __m512 Dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// A factor of sixteen lanes that several rows multiply.
template <DotOrder kOrder>
struct DotOperand {
  __m512i pairs;
  explicit DotOperand(__m512i p) : pairs(p) {}
};
template <>
struct DotOperand<DotOrder::kTiles> {
  __m512i even, odd;  // 0 in the place of the others
  explicit DotOperand(__m512i pairs)
      : even(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff))),
        odd(_mm512_andnot_si512(_mm512_set1_epi32(0xffff), pairs)) {}
};

template <DotOrder kOrder>
struct DotSum {
  __m512 sum = _mm512_setzero_ps();
  void Add(__m512i a, const DotOperand<kOrder>& b) { sum = Dot(sum, a, b.pairs); }
  void EndBlock() {}
};
template <>
struct DotSum<DotOrder::kTiles> {
  __m512 sum = _mm512_setzero_ps(), even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  void Add(__m512i a, const DotOperand<DotOrder::kTiles>& b) {
    even = Dot(even, a, b.even);
    odd = Dot(odd, a, b.odd);
  }
  // Tiles take a sum below 2^-126 for 0, these additions do not: there alone results differ.
  void EndBlock() {
    sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
    even = odd = _mm512_setzero_ps();
  }
};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DOT_ORDER_INL_H_
