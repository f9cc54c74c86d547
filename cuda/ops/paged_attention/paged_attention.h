// File: cuda/ops/paged_attention/paged_attention.h
// Kernels of `paged_attention` (cc/ops/paged_attention/paged_attention.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> PagedAttentionKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_
