// File: cuda/gpu_math.h
// Functions that several kernels compute.
#ifndef PAGEMILL_CUDA_GPU_MATH_H_
#define PAGEMILL_CUDA_GPU_MATH_H_

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// ln(1 + e^x), without overflow.
PAGEMILL_DEVICE float Softplus(float x) { return fmaxf(x, 0) + log1pf(Exp(-fabsf(x))); }

// What holds scores to less than `most`: most * tanh(x / most).
struct SoftCap {
  float most;       // 0: scores are as they are
  float steepness;  // 2 / most

  // Its error is relative to `most`, not to x. A few instructions, where tanhf has two branches and
  // each of a tile's scores a copy of them. The same bits in every kernel that inlines it: no
  // product is left to the compiler to fuse.
  PAGEMILL_DEVICE float Of(float x) const {
    return most - 2 * most / (1 + Exp(RoundedProduct(steepness, x)));
  }
};

inline SoftCap SoftCapOf(float most) { return {most, most > 0 ? 2 / most : 0}; }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_MATH_H_
