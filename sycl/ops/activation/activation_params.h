#ifndef PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_PARAMS_H_

#include "cc/ops/activation/activation_kind.h"
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ActivationParams {
  Rows x, y;  // rows of `width` elements
  ops::ActivationKind kind = ops::ActivationKind::kSilu;
  float limit = 0;  // 0: none
  float lower = 0;  // with a limit
  int64_t rows = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_PARAMS_H_
