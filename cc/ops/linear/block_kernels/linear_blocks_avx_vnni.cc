// `linear` with block-format weights in slices (packed_blocks.h) and activations quantized to
// integers (quantized_activations.h), multiplied by VPDPBUSD in registers of 32 bytes, for CPUs
// that have it without AVX-512.
#include <immintrin.h>

#include "cc/ops/linear/block_kernels/block_avx2_inl.h"
#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/packed_gemm_kernels.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

struct ByVpdpbusd {
  static constexpr bool kHasBytesOf8Bits = true;

  template <int kBits>
  class ByteSums {
   public:
    PAGEMILL_INLINE void Start(__m256i start) { total_ = start; }
    PAGEMILL_INLINE void Add(int, __m256i values, __m256i x) {
      total_ = _mm256_dpbusd_avx_epi32(total_, values, x);
    }
    PAGEMILL_INLINE __m256i Total(__m256i) const { return total_; }

   private:
    __m256i total_;
  };
};

}  // namespace

constinit const PackedGemm kAvxVnniInt8Kernels = kKernels<Avx2Blocks<ByVpdpbusd, 1>>;
constinit const PackedGemm kAvxVnniMixedKernels = kKernels<Avx2Blocks<ByVpdpbusd, kMixed>>;

}  // namespace pagemill::ops::linear
