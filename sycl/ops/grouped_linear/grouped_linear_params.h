#ifndef PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_
#define PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int32_t kGroupedLinearGroupSize = 128;

struct GroupedLinearParams {
  Rows x;              // of tokens
  int64_t x_step = 0;  // elements between the choices of a token; 0: they share one row
  Rows ids;            // [tokens, choices]
  Rows w;              // matrices [m, k] of experts
  int64_t w_row_bytes = 0;
  Rows bias;  // [experts, m] f32; without data: none
  Rows y;     // of tokens: m elements a choice
  ElementType type = ElementType::kF32;  // of w
  int64_t tokens = 0, choices = 0, experts = 0, m = 0, k = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_GROUPED_LINEAR_GROUPED_LINEAR_PARAMS_H_
