#ifndef PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// The words of a RowDraw (cc/ops/sample/row_draw.h).
struct DrawWords {
  float temperature, min_p, top_p;
  int32_t top_k;
  uint32_t seed_low, seed_high;
  int32_t position;
  int32_t mask;
};

struct DrawTokensParams {
  Rows x;                           // rows of `width` f32
  const int32_t* columns = nullptr;  // [rows]; -1: no token
  const float* values = nullptr;     // [rows] the largest element
  Rows draws;                        // [rows] of DrawWords
  int32_t* y = nullptr;              // [rows]
  int32_t width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_DRAW_TOKENS_DRAW_TOKENS_PARAMS_H_
