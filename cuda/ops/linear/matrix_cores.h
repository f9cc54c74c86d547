// File: cuda/ops/linear/matrix_cores.h
// The product of bf16 activations and weights of any format on matrix cores of AMD GPUs with warps
// of kLanes, 32 or 64 (matrix_core_tiles.h).
#ifndef PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORES_H_

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// True if MultiplyOnMatrixCores<lanes>() takes these operands: a bf16 x, and rows of whole tiles.
bool FitsMatrixCores(const device::Capabilities& caps, int lanes, const TensorView& x,
                     const TensorView& w);

// As MultiplyOnTensorCores().
template <int kLanes>
void MultiplyOnMatrixCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORES_H_
