// File: cuda/ops/split/split.h
// Kernels of `split` (cc/ops/split/split.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SPLIT_SPLIT_H_
#define PAGEMILL_CUDA_OPS_SPLIT_SPLIT_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> SplitKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SPLIT_SPLIT_H_
