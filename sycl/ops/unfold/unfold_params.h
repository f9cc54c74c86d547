#ifndef PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_PARAMS_H_
#define PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct UnfoldParams {
  Rows x;                       // rows of `positions`, each of `channels` elements
  Rows y;                       // rows of windows, each of `channels` * `size` elements
  int64_t rows = 0, width = 0;  // of y, in elements
  int64_t positions = 0, channels = 0;
  int64_t size = 0, stride = 0, padding = 0;
  int64_t group = 1, count = 0;    // rows that an index is for, and windows of a row
  const int32_t* index = nullptr;  // [group, count, size]; null: windows along each row
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_PARAMS_H_
