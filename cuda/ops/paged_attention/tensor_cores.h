// File: cuda/ops/paged_attention/tensor_cores.h
// paged_attention on tensor cores: queries and weights of keys are rounded to bf16, sums are f32.
//
// The query heads that read a KV head are rows of one tile, with as many tokens as fit. A warp has
// 16 rows; the warps of a block share tiles of keys and values in shared memory. attention_plan.h
// has how a batch is divided, and why no division changes bits.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// GPUs with the instructions and the shared memory; caches in bf16 and f8_e4m3; head_dim a multiple
// of 16, up to 128; blocks of a multiple of 8 tokens, with keys in columns.
bool SupportsAttentionOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call);

// Blocks of the cache begin at multiples of 16 bytes. The context has a plan of attention_plan.h
// and a workspace of AttentionStateBytes().
void AttendOnTensorCores(const ops::OpCall& call, ops::KernelContext& context);

int64_t AttentionStateBytes(const ops::OpCall& call, int32_t num_threads);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_
