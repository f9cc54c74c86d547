// File: cuda/ops/paged_attention/tensor_cores.h
// paged_attention on tensor cores: queries and weights of keys are rounded to bf16, sums are f32.
//
// The query heads that read a KV head are rows of one tile, with as many tokens as fit. A warp has
// 16 rows; the warps of a block share tiles of keys and values in shared memory. attention_plan.h
// has how a batch is divided, and why no division changes bits.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// GPUs with the instructions, and operands that FitsItems() (attention_items.h).
bool SupportsAttentionOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call);

// As AttendByItems().
void AttendOnTensorCores(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_TENSOR_CORES_H_
