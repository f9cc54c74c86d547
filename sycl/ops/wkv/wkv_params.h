#ifndef PAGEMILL_SYCL_OPS_WKV_WKV_PARAMS_H_
#define PAGEMILL_SYCL_OPS_WKV_WKV_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct WkvParams {
  Rows key, value, y;            // rows of `channels` elements
  const float* decay = nullptr;  // [channels]; so has `first`
  const float* first = nullptr;
  Rows states;                   // pages of f32 [3, channels]
  StepTokens batch{};
  int64_t channels = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_WKV_WKV_PARAMS_H_
