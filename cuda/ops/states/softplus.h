// File: cuda/ops/states/softplus.h
// log(1 + e^x) in kernels, without overflow.
#ifndef PAGEMILL_CUDA_OPS_STATES_SOFTPLUS_H_
#define PAGEMILL_CUDA_OPS_STATES_SOFTPLUS_H_

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

PAGEMILL_DEVICE float Softplus(float x) { return x > 20 ? x : log1pf(Exp(x)); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_SOFTPLUS_H_
