#ifndef PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct CountTokensParams {
  Rows counts;                        // [slots, width] i32
  Rows changes;                       // [num_changes], words of a TokenCount
  const int32_t* cleared = nullptr;   // [num_cleared]
  const int32_t* ids = nullptr;
  int64_t num_cleared = 0, num_changes = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_COUNT_TOKENS_COUNT_TOKENS_PARAMS_H_
