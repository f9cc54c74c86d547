// File: cuda/ops/concat/concat.h
// Kernels of `concat` (cc/ops/concat/concat.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_CONCAT_CONCAT_H_
#define PAGEMILL_CUDA_OPS_CONCAT_CONCAT_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ConcatKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_CONCAT_CONCAT_H_
