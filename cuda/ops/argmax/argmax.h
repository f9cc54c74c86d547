// File: cuda/ops/argmax/argmax.h
// Kernels of `argmax` (cc/ops/argmax/argmax.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ARGMAX_ARGMAX_H_
#define PAGEMILL_CUDA_OPS_ARGMAX_ARGMAX_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ArgmaxKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ARGMAX_ARGMAX_H_
