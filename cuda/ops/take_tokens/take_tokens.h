// File: cuda/ops/take_tokens/take_tokens.h
// Kernels of `take_tokens` (cc/ops/take_tokens/take_tokens.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_TAKE_TOKENS_TAKE_TOKENS_H_
#define PAGEMILL_CUDA_OPS_TAKE_TOKENS_TAKE_TOKENS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> TakeTokensKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TAKE_TOKENS_TAKE_TOKENS_H_
