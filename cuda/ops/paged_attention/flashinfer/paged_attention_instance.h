// File: cuda/ops/paged_attention/flashinfer/paged_attention_instance.h
// One instance of FlashInfer's kernel of attention over pages, as a function: for a head_dim and a
// number of rows of a tile. Each is a translation unit of its own, which the list in
// cuda/libraries.bzl makes of paged_attention_instance_inl.h.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/ops/paged_attention/flashinfer/plan.h"

namespace pagemill::gpu {

// Of device memory; elements are bf16, strides are elements.
struct PagedAttentionCall {
  FlashInferShape shape;
  FlashInferPlanView plan;
  const int32_t* query_start;  // [requests + 1]
  const int32_t* block_table;  // [requests, table_stride]
  const void* q;               // [tokens, q_heads, head_dim]
  int64_t q_stride;            // from one token to the next
  const void* cache;  // pages: keys [kv_heads, block_size, head_dim], then values
  int64_t page_stride;
  void* y;        // [tokens, q_heads, head_dim], dense
  void* states;   // [MaxStates, q_heads, head_dim] values of chunks
  float* scales;  // [MaxStates, q_heads] logarithms of their sums of weights
  float scale;    // of scores
  bool early;     // as LaunchShape of cuda/gpu_launch.h has it; some block has work
};

template <int kHeadDim, int kTileRows>
cudaError_t RunPagedAttention(const PagedAttentionCall& call, cudaStream_t stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_PAGED_ATTENTION_INSTANCE_H_
