#ifndef PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_
#define PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

inline constexpr int32_t kGroupedLinearGroupSize = 128;

struct GroupedLinearParams {
  Rows x;              // of tokens
  int64_t x_step = 0;  // elements between the choices of a token; 0: they share one row
  Rows ids;            // [tokens, choices]
  WeightMatrices w;    // [experts, m, k]
  Rows bias;           // [experts, m] f32; without data: none
  Rows y;              // of tokens: m elements a choice
  int64_t tokens = 0, choices = 0, experts = 0, m = 0, k = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_
