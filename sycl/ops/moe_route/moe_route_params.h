#ifndef PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int32_t kMaxExpertGroups = 64;

struct MoeRouteParams {
  Rows logits;                     // [rows, experts] f32
  Rows ids, weights;               // [rows, choices] i32 and f32
  const float* bias = nullptr;     // [experts], or null
  const float* factors = nullptr;  // [experts], or null
  Rows token_ids;                  // rows of one i32, if there is a table
  Rows table;                      // rows of `choices` f32
  int64_t rows = 0;
  int32_t experts = 0, choices = 0;
  bool has_table = false;
  // Otherwise softmax.
  bool sigmoid = false, sparse_mixer = false, sqrt_softplus = false;
  bool logits_bias = false, renormalize = false;
  float tolerance = 0;  // of SparseMixer
  float scale = 1;
  int32_t groups = 1, group_choices = 1, group_top = 1;
  int32_t first = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MOE_ROUTE_MOE_ROUTE_PARAMS_H_
