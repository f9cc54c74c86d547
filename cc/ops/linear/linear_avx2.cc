// `linear` with AVX2, FMA and F16C: 8 lanes, 12 sums in registers.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cc/ops/block_format/decoder_avx2.h"
#include "cc/ops/linear/float_gemm_inl.h"
#include "cc/ops/linear/float_gemm_kernels.h"

namespace pagemill::ops::linear {
namespace {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  static constexpr int64_t kDirectN = 2;
  static constexpr int64_t kMaxDirectN = 4;
  static constexpr int64_t kTileN = 3;
  template <DType kDType>
  using Decoder = DecoderAvx2<kDType>;

  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Load(const void* from) { return _mm256_loadu_ps(static_cast<const float*>(from)); }
  static Vec LoadPartial(const void* from, int count) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, from, sizeof(float) * count);
    return _mm256_loadu_ps(lanes);
  }
  static void Store(float* to, Vec v) { _mm256_storeu_ps(to, v); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // Lanes (i, i + 4), then (i, i + 1), then the two pairs.
  static Float4 Sum4(const Vec v[4]) {
    __m128 halves[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      halves[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
    }
    return _mm_hadd_ps(_mm_hadd_ps(halves[0], halves[1]), _mm_hadd_ps(halves[2], halves[3]));
  }
  [[gnu::always_inline]] static void Prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace

constinit const FloatGemm kAvx2Kernels = kFloatGemmOf<Avx2>;

}  // namespace pagemill::ops::linear
