// File: cuda/ops/linear/tensor_cores.h
// The product of bf16 activations and bf16 weights on tensor cores.
//
// Weights are the left factor of each instruction, so that a single row of x costs as much as eight.
// A sum is that of kSplits parts of K, each in the order of K: one warp has all of them for many
// rows of x, or each of kSplits warps has one for few. So bits depend on the row of x and K alone.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_

#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// K is a multiple of it.
inline constexpr int kTensorCoreColumns = 32;

// y = x W^T + bias: x bf16 [N, K], W bf16 [M, K], with rows at multiples of 16 bytes; y bf16 or f32
// [N, M]; bias [M] may be null.
void MultiplyOnTensorCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
