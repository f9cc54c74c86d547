#ifndef PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct SelectiveScanParams {
  Rows x, dt, y;                 // rows of `channels` elements
  Rows b, c;                     // rows of `states` elements
  Rows a_log;                    // f32 [channels, states]
  const float* d = nullptr;      // [channels]; so has dt_bias
  const float* dt_bias = nullptr;
  Rows state_pages;              // f32 [states, channels]
  StepTokens batch{};
  int32_t states = 0;
  int64_t channels = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_PARAMS_H_
