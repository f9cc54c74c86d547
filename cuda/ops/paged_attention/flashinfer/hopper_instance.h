// File: cuda/ops/paged_attention/flashinfer/hopper_instance.h
// One instance of FlashInfer's attention for prompts on compute capability 9.0, as a function: for
// a head_dim. Each is a translation unit of its own, which the list in cuda/libraries.bzl makes of
// hopper_instance_inl.h.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/ops/paged_attention/flashinfer/hopper_plan.h"

namespace pagemill::gpu {

// Of device memory; elements are bf16, strides are elements. Rows of q, of pages and of y are
// aligned to 16 bytes.
struct HopperCall {
  FlashInferShape shape;
  HopperPlanView plan;
  const int32_t* block_table;  // [requests, table_stride]
  const void* q;               // [tokens, q_heads, head_dim]
  int64_t q_stride;            // from one token to the next
  const void* cache;           // pages: keys [kv_heads, block_size, head_dim], then values
  int64_t page_stride;
  void* y;      // [tokens, q_heads, head_dim], dense; rows of prompts are written
  float scale;  // of scores
};

template <int kHeadDim>
cudaError_t RunHopperAttention(const HopperCall& call, cudaStream_t stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_INSTANCE_H_
