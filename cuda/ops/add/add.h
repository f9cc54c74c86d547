// File: cuda/ops/add/add.h
// Kernels of `add` (cc/ops/add/add.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ADD_ADD_H_
#define PAGEMILL_CUDA_OPS_ADD_ADD_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> AddKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ADD_ADD_H_
