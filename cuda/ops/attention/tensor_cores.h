// File: cuda/ops/attention/tensor_cores.h
// attention on tensor cores: weights of keys are rounded to bf16, sums are f32.
//
// A block has 64 tokens of a head, 16 a warp, and walks the keys that they see, request by request
// in tiles of 64 that begin at multiples of 64 of the request: what else is in a block changes no
// bits of a row.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_TENSOR_CORES_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// GPUs with the instructions; activations in bf16, and head_dim a multiple of 8 up to 128.
bool SupportsTokensOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call);

// Rows of all operands are aligned (gpu_rows.h).
void AttendTokensOnTensorCores(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_TENSOR_CORES_H_
