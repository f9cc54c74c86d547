// File: cuda/gpu_math.h
// Functions that several kernels compute.
#ifndef PAGEMILL_CUDA_GPU_MATH_H_
#define PAGEMILL_CUDA_GPU_MATH_H_

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// ln(1 + e^x), without overflow.
PAGEMILL_DEVICE float Softplus(float x) { return fmaxf(x, 0) + log1pf(Exp(-fabsf(x))); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_MATH_H_
