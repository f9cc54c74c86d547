// File: cuda/ops/linear/tensor_cores.h
// The product of bf16 activations and weights of any format on tensor cores (tensor_core_tiles.h).
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// Of x, up to which warps share K.
inline constexpr int64_t kFewTensorCoreRows = 32;

// True if MultiplyOnTensorCores() takes these operands: a bf16 x, and rows of whole tiles.
bool FitsTensorCores(const device::Capabilities& caps, const TensorView& x, const TensorView& w);

// y = x W^T + bias: x bf16 [N, K], W [M, K], with rows of bf16 at multiples of 16 bytes; y bf16 or
// f32 [N, M]; bias [M] may be null.
void MultiplyOnTensorCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
