// File: cuda/ops/mask_tokens/mask_tokens.h
// Kernels of `mask_tokens` (cc/ops/mask_tokens/mask_tokens.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_MASK_TOKENS_MASK_TOKENS_H_
#define PAGEMILL_CUDA_OPS_MASK_TOKENS_MASK_TOKENS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> MaskTokensKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_MASK_TOKENS_MASK_TOKENS_H_
