#ifndef PAGEMILL_SYCL_OPS_ROTARY_ROTARY_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ROTARY_ROTARY_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct RotaryParams {
  Rows q, k, q_out, k_out;  // rows of heads of head_dim elements
  Rows positions;           // rows of `dims` int32
  Rows frequencies;         // [dims, pairs] f32
  int64_t tokens = 0;
  int64_t q_heads = 0, k_heads = 0, head_dim = 0;
  int64_t dims = 1, pairs = 0;
  bool interleaved = false;
  float mscale = 1;
  int32_t begin = 0;   // the first element of a head that rotates
  int32_t offset = 0;  // added to positions
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ROTARY_ROTARY_PARAMS_H_
