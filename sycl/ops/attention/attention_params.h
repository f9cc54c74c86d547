#ifndef PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/paged_attention/paged_attention_params.h"  // kAttentionGroupSize

namespace pagemill::sycl {

// ops::BiasTable, for kernels.
struct AttentionBiases {
  const float* data = nullptr;  // null: none
  int32_t reach = 0;
  int64_t row_stride = 0;
};

struct AttentionParams {
  Rows q, y;                       // rows of q_heads heads of head_dim elements
  Rows k, v;                       // rows of kv_heads heads
  AttentionBiases biases, column_biases, key_biases;
  int32_t grid_columns = 0;              // 0: no biases of columns
  const int32_t* query_start = nullptr;  // [requests + 1]
  int32_t requests = 0, rows_of_token = 1, q_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  float soft_cap = 0;            // 0: none
  const float* sinks = nullptr;  // [q_heads], or null
  int32_t window = 0;            // 0: none
  bool causal = true;
  const int32_t* listed = nullptr;  // [rows, 2], or null: keys [first, end) of the request
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_PARAMS_H_
