// File: cuda/ops/head_linear/head_linear.h
// Kernels of `head_linear` (cc/ops/head_linear/head_linear.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_HEAD_LINEAR_HEAD_LINEAR_H_
#define PAGEMILL_CUDA_OPS_HEAD_LINEAR_HEAD_LINEAR_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> HeadLinearKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_HEAD_LINEAR_HEAD_LINEAR_H_
