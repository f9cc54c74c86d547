// File: cuda/ops/linear/f8_matrix_cores.h
// The product of weights in fp8 and bf16 activations, which are rounded to fp8, on matrix cores of
// AMD GPUs with warps of kLanes, 32 or 64: the precision kF8 of linear.h, with a scale for
// kF8Columns columns of a row of x. Bits depend on the row of x and K alone.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORES_H_

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_rows.h"

namespace pagemill::gpu {

// True for a GPU that HasF8MatrixCores(), a bf16 x, and weights that HaveF8Stages() (f8_stages.h),
// with scales of whole rows, or of blocks of a multiple of 16 rows.
bool FitsF8MatrixCores(const device::Capabilities& caps, int lanes, const TensorView& x,
                       const TensorView& w);

// y = x W^T + bias for weights that AreF8StagesRead(); bias is f32, or null. `x` and `x_scales` are
// those of RoundedGroups (rounded_groups.h).
template <int kLanes>
void MultiplyInF8(const Rows<uint8_t>& x, const Rows<float>& x_scales, const TensorView& w,
                  const float* bias, const TensorView& y, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORES_H_
