#ifndef PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/paged_attention/paged_attention_params.h"  // kAttentionGroupSize

namespace pagemill::sycl {

struct AttentionParams {
  Rows q, y;                       // rows of q_heads heads of head_dim elements
  Rows k, v;                       // rows of kv_heads heads
  const float* biases = nullptr;   // [q_heads, 2 * bias_reach + 1], or null
  int32_t bias_reach = 0;
  const int32_t* query_start = nullptr;  // [requests + 1]
  int32_t requests = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  int32_t window = 0;  // 0: none
  bool causal = true;
  const int32_t* windows = nullptr;  // [tokens, 2], or null: keys [first, end) of the request
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_
