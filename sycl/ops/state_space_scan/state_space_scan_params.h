#ifndef PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_PARAMS_H_
#define PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct StateSpaceScanParams {
  Rows xbc;  // x of all heads, then b and c of all groups
  Rows dt;   // [tokens, heads]
  Rows y;    // [tokens, heads, head_dim]
  const float *a_log = nullptr, *d = nullptr, *dt_bias = nullptr;  // [heads]
  Rows state_pages;  // f32 [heads, states, head_dim]
  StepTokens batch{};
  int32_t heads = 0, head_dim = 0, states = 0, groups = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_PARAMS_H_
