#ifndef PAGEMILL_SYCL_OPS_POOL_POOL_PARAMS_H_
#define PAGEMILL_SYCL_OPS_POOL_POOL_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Those of ops::PoolKind that have a kernel.
enum class PooledTokens : int32_t { kMean, kFirst, kLast, kAll };

struct PoolParams {
  Rows x, y;                             // rows of `width` elements
  const int32_t* query_start = nullptr;  // [rows of y + 1]; kAll reads none
  int64_t width = 0;
  PooledTokens tokens = PooledTokens::kMean;
  bool normalize = false;
  bool f32 = false;  // y is; else it has the type of activations
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_POOL_POOL_PARAMS_H_
