// File: cuda/ops/scale/scale.h
// Kernels of `scale` (cc/ops/scale/scale.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SCALE_SCALE_H_
#define PAGEMILL_CUDA_OPS_SCALE_SCALE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ScaleKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SCALE_SCALE_H_
