// File: cuda/ops/linear/tensor_cores.h
// The product of bf16 activations and weights of any format on tensor cores (tensor_core_tiles.h).
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_

#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// Of x, up to which warps share K.
inline constexpr int64_t kFewTensorCoreRows = 64;

// True for a bf16 x and rows of whole tiles: MultiplyOnTensorCores() takes these operands if it
// can also read where the weights lie, AreReadOnTensorCores().
bool FitsTensorCores(const device::Capabilities& caps, const TensorView& x, const TensorView& w);

// True for weights whose rows vector loads can read: bf16 at multiples of 16 bytes, elements of 8
// bits at multiples of 8, with scales of whole rows or of blocks of a multiple of 8 columns.
bool AreReadOnTensorCores(const TensorView& w);

// y = x W^T + bias: W [M, K], which AreReadOnTensorCores(); y bf16 or f32 [N, M]; bias [M] may be
// null.
struct Product {
  TensorView w;
  const float* bias;
  TensorView y;
};

// Products with the same x, bf16 [N, K].
void MultiplyOnTensorCores(const TensorView& x, std::span<const Product> products,
                           device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORES_H_
