#ifndef PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int kMaxCompressedParts = 2;

struct CompressTokensParams {
  Rows x, gate;  // rows of `parts` times `channels` elements
  Rows bias;     // f32 [window, parts * channels]
  Rows states;   // pages of f32 [parts, 3, channels]
  Rows y;        // rows of `channels` elements
  StepTokens batch{};
  int32_t window = 1, parts = 1;
  int64_t channels = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_PARAMS_H_
