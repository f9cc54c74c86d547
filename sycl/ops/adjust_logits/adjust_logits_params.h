#ifndef PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct AdjustLogitsParams {
  Rows x;          // [rows, width] f32
  Rows counts;     // [slots, width] i32
  Rows biases;     // [num_biases], words of a LogitBias
  Rows penalties;  // [num_penalties], words of a RowPenalties
  const int32_t* ids = nullptr;  // of the step
  int64_t num_biases = 0, num_penalties = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_PARAMS_H_
