// File: cuda/ops/grouped_linear/grouped_linear.h
// Kernels of `grouped_linear` (cc/ops/grouped_linear/grouped_linear.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> GroupedLinearKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUPED_LINEAR_H_
