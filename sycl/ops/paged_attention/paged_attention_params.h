#ifndef PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Work-items of a group, and the keys that it scores at a time.
inline constexpr int32_t kAttentionGroupSize = 64;
inline constexpr int32_t kMaxAttentionHeadDim = 512;

struct PagedAttentionParams {
  Rows q, y;   // rows of q_heads heads of head_dim elements
  Rows cache;  // rows are blocks
  ElementType type = ElementType::kF32;  // of the cache
  const float* sinks = nullptr;          // [q_heads], or null
  const float* slopes = nullptr;         // [q_heads], or null
  const float* biases = nullptr;         // [q_heads, 2 * bias_reach + 1], or null
  int32_t bias_reach = 0;
  const int32_t* query_start = nullptr;  // [requests + 1]
  const int32_t* seq_lens = nullptr;     // [requests]
  const int32_t* block_table = nullptr;  // [requests, table_stride]
  int64_t table_stride = 0;
  int32_t requests = 0, block_size = 0;
  int32_t q_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;  // of scores, that of the keys of an fp8 cache included
  float v_scale = 1;
  int32_t window = 0;  // 0: none
  bool chunked = false, causal = true;
  bool encoder_keys = false;  // only those of the encoder, else only those of the decoder, if ...
  const int32_t* encoder_ends = nullptr;  // ... this, [tokens], is not null
  const int32_t* item_ends = nullptr;     // [tokens], or null
  float soft_cap = 0;      // 0: none
  int32_t grows_from = 0;  // 0: nothing grows
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_PARAMS_H_
