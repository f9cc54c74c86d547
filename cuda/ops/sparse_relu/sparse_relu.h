// File: cuda/ops/sparse_relu/sparse_relu.h
// Kernels of `sparse_relu` (cc/ops/sparse_relu/sparse_relu.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SPARSE_RELU_SPARSE_RELU_H_
#define PAGEMILL_CUDA_OPS_SPARSE_RELU_SPARSE_RELU_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> SparseReluKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SPARSE_RELU_SPARSE_RELU_H_
