// File: cuda/ops/linear/linear.h
// Kernels of `linear` (cc/ops/linear/linear.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_LINEAR_H_
#define PAGEMILL_CUDA_OPS_LINEAR_LINEAR_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> LinearKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_LINEAR_H_
