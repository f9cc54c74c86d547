#ifndef PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct MoeCombineParams {
  Rows x;  // rows of `width` elements a choice, `step` apart; 0: all choices share them
  Rows weights;  // [rows, choices] f32
  Rows y;        // [rows, width]
  int64_t rows = 0, choices = 0, width = 0, step = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MOE_COMBINE_MOE_COMBINE_PARAMS_H_
