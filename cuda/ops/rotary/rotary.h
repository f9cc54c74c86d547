// File: cuda/ops/rotary/rotary.h
// Kernels of `rotary` (cc/ops/rotary/rotary.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ROTARY_ROTARY_H_
#define PAGEMILL_CUDA_OPS_ROTARY_ROTARY_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> RotaryKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ROTARY_ROTARY_H_
