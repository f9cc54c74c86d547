#include "cc/ops/linear/onednn/round_row.h"

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

namespace pagemill::ops::linear {

void RoundRowAvx512(const float* x, int64_t k, int64_t padded_k, uint16_t* out) {
  for (int64_t at = 0; at < padded_k; at += 16) {
    const int64_t left = k - at;
    const uint32_t bits = left >= 16 ? 0xffffu : left <= 0 ? 0u : (1u << left) - 1u;
    const __m512 values = _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), x + at);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
}

}  // namespace pagemill::ops::linear
