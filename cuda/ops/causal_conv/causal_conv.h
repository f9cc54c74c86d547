// File: cuda/ops/causal_conv/causal_conv.h
// Kernels of `causal_conv` (cc/ops/causal_conv/causal_conv.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_CAUSAL_CONV_CAUSAL_CONV_H_
#define PAGEMILL_CUDA_OPS_CAUSAL_CONV_CAUSAL_CONV_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> CausalConvKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_CAUSAL_CONV_CAUSAL_CONV_H_
