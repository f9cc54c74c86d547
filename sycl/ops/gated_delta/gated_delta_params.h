#ifndef PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_PARAMS_H_
#define PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct GatedDeltaParams {
  Rows qkv, b, a, y;
  const float* a_log = nullptr;    // [heads]
  const float* dt_bias = nullptr;  // [heads, rates]
  Rows state_pages;                // f32 [heads, keys, values]
  StepTokens batch{};
  int32_t heads = 0, groups = 0, keys = 0, values = 0;
  int32_t rates = 1;  // elements of a of a head: 1, or `keys`
  bool by_group = false, in_turn = false;
  float share_scale = 1;
  float norm_eps = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_GATED_DELTA_GATED_DELTA_PARAMS_H_
