// File: cuda/ops/linear/int8_tensor_cores.h
// The product of int8 weights and rows of activations rounded to int8, on tensor cores
// (tensor_core_tiles.h): the precision kInt8Block of linear.h. Sums of integers are exact.
//
//   RoundRows(x, columns, workspace, stream);  // of RoundedRowsBytes(rows, columns)
//   MultiplyInInt8(workspace, x.shape[0], w, bias, y, stream);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_INT8_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_INT8_TENSOR_CORES_H_

#include <cstddef>
#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::gpu {

// True if MultiplyInInt8() takes the weights: i8 with a scale a row or for all of them.
bool FitsInt8TensorCores(const device::Capabilities& caps, const TensorView& w);

// What `rounded` holds: integers, and a scale a row.
int64_t RoundedRowsBytes(int64_t rows, int64_t columns);

// Rounds rows of f32, bf16 or f16 to integers times a scale of their own, X / 127 where X is the
// largest magnitude. The scale of a row with a NaN is NaN.
void RoundRows(const TensorView& x, int64_t columns, std::byte* rounded, device::Stream& stream);

// y = x W^T + bias for the `rows` of RoundRows(): W i8 [M, K] with scales, y [N, M] of f32, bf16 or
// f16; bias [M] may be null.
void MultiplyInInt8(const std::byte* rounded, int64_t rows, const TensorView& w, const float* bias,
                    const TensorView& y, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_INT8_TENSOR_CORES_H_
