#ifndef PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct GatedRecurrenceParams {
  Rows x, gate, y;              // rows of `channels` elements
  const float* rate = nullptr;  // [channels]
  Rows states;                  // pages of f32 [channels]
  StepTokens batch{};
  int64_t channels = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_GATED_RECURRENCE_GATED_RECURRENCE_PARAMS_H_
