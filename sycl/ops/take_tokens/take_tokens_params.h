#ifndef PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct TakeTokensParams {
  const int32_t* ids = nullptr;  // [tokens]
  const int32_t* sampled = nullptr;
  int32_t* y = nullptr;  // [tokens]
  int64_t tokens = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_TAKE_TOKENS_TAKE_TOKENS_PARAMS_H_
