#ifndef PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Elements [first, first + count) of rows of `width`, as one sequence.
struct RowElements {
  Rows rows;
  int64_t width = 0, first = 0, count = 0;
};

struct PackElementsParams {
  RowElements x;
  void* packed = nullptr;  // [count]
};

struct AllReduceParams {
  const void* parts = nullptr;  // [ranks, y.count]
  RowElements y;
  int32_t ranks = 1;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_PARAMS_H_
