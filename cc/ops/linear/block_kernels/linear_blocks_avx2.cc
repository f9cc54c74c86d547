// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by VPMADDUBSW and VPMADDWD.
//
// VPMADDUBSW adds two products of an unsigned byte (the weight) and a signed one (of x, from -127
// to 127) into 16 bits with saturation, so a sum of j of them is exact while 2 j * 127 * (2^bits -
// 1) < 2^15:
//
//   4 bits: 8 quads, 30480     5 bits: 4 quads, 31496     6 bits: 2 quads, 32004
//
// Then VPMADDWD by ones adds both halves of a 32-bit lane. 8 bits do not fit at all (64770): these
// weights and x are words, multiplied by VPMADDWD, which is exact.
#include <immintrin.h>

#include "cc/ops/linear/block_kernels/block_avx2_inl.h"
#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/packed_gemm_kernels.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

// Keeps `value` in a register at this point: otherwise GCC adds all products as a tree, which needs
// far more registers than there are (1.45 times the time).
PAGEMILL_INLINE void KeepHere(__m256i& value) { asm("" : "+x"(value)); }

struct ByVpmaddubsw {
  static constexpr bool kHasBytesOf8Bits = false;

  template <int kBits>
  class ByteSums {
   public:
    PAGEMILL_INLINE void Start(__m256i) {}
    PAGEMILL_INLINE void Add(int i, __m256i values, __m256i x) {
      const __m256i products = _mm256_maddubs_epi16(values, x);
      words_ = i % kQuadsOfWords == 0 ? products : _mm256_add_epi16(words_, products);
      KeepHere(words_);
      if (i % kQuadsOfWords != kQuadsOfWords - 1) return;
      const __m256i sums = _mm256_madd_epi16(words_, _mm256_set1_epi16(1));
      total_ = i < kQuadsOfWords ? sums : _mm256_add_epi32(total_, sums);
    }
    PAGEMILL_INLINE __m256i Total(__m256i start) const { return _mm256_add_epi32(total_, start); }

   private:
    static constexpr int kQuadsOfWords = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;
    static_assert(2 * kQuadsOfWords * 127 * ((1 << kBits) - 1) < 1 << 15);
    __m256i words_;  // 16 bits
    __m256i total_;
  };

  PAGEMILL_INLINE static __m256i AddWords(__m256i sums, __m256i a, __m256i b) {
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
    KeepHere(sums);
    return sums;
  }
};

}  // namespace

constinit const PackedGemm kAvx2Int8Kernels = kKernels<Avx2Blocks<ByVpmaddubsw, 1>>;
constinit const PackedGemm kAvx2MixedKernels = kKernels<Avx2Blocks<ByVpmaddubsw, kMixed>>;

}  // namespace pagemill::ops::linear
