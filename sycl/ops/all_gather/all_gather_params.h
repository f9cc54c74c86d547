#ifndef PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int32_t kMaxGatheredRanks = 8;

// Elements [first, first + count) of each rank's columns, as one sequence, as far as it has as
// many.
struct AllGatherParams {
  const void* parts = nullptr;  // [ranks, count]
  Rows y;
  int64_t rows = 0, first = 0, count = 0;
  int64_t begins[kMaxGatheredRanks + 1] = {};  // of the ranks' columns in y, and their end
  int32_t ranks = 1;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_PARAMS_H_
