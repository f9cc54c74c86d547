// `linear` with AVX-512 F, BW, DQ and VL: 16 lanes, 24 sums in registers.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/block_format/decoder_avx512.h"
#include "cc/ops/linear/float_gemm_inl.h"
#include "cc/ops/linear/float_gemm_kernels.h"

namespace pagemill::ops::linear {
namespace {

struct Avx512 {
  using Vec = __m512;
  static constexpr int kLanes = 16;
  static constexpr int64_t kDirectN = 4;
  static constexpr int64_t kMaxDirectN = 8;
  static constexpr int64_t kTileN = 6;
  template <DType kDType>
  using Decoder = DecoderAvx512<kDType>;

  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Load(const void* from) { return _mm512_loadu_ps(from); }
  static Vec LoadPartial(const void* from, int count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), from);
  }
  static void Store(float* to, Vec v) { _mm512_storeu_ps(to, v); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // Lanes (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
  static Float4 Sum4(const Vec v[4]) {
    const Vec a = AddHalves(v[0], v[1]);
    const Vec b = AddHalves(v[2], v[3]);
    // 128-bit lane i belongs to v[i].
    Vec s = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const __m512i first_of_each =
        _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_each, s));
  }
  [[gnu::always_inline]] static void Prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }

 private:
  // [a.low + a.high, b.low + b.high], halves of 256 bits.
  static Vec AddHalves(Vec a, Vec b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
};

}  // namespace

constinit const FloatGemm kAvx512Kernels = kFloatGemmOf<Avx512>;

}  // namespace pagemill::ops::linear
