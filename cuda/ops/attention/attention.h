// File: cuda/ops/attention/attention.h
// Kernels of `attention` (cc/ops/attention/attention.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_ATTENTION_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_ATTENTION_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> AttentionKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_ATTENTION_H_
