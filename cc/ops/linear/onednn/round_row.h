// File: cc/ops/linear/onednn/round_row.h
// Rounding of activations for BlockLibrary::round.
#ifndef PAGEMILL_CC_OPS_LINEAR_ONEDNN_ROUND_ROW_H_
#define PAGEMILL_CC_OPS_LINEAR_ONEDNN_ROUND_ROW_H_

#include <cstdint>

namespace pagemill::ops::linear {

#if defined(__x86_64__)
// For CPUs with AVX512-BF16. Subnormal numbers become 0.
void RoundRowAvx512(const float* x, int64_t k, int64_t padded_k, uint16_t* out);
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ONEDNN_ROUND_ROW_H_
