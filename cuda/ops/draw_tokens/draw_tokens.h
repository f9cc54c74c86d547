// File: cuda/ops/draw_tokens/draw_tokens.h
// Kernels of `draw_tokens` (cc/ops/draw_tokens/draw_tokens.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_DRAW_TOKENS_DRAW_TOKENS_H_
#define PAGEMILL_CUDA_OPS_DRAW_TOKENS_DRAW_TOKENS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> DrawTokensKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_DRAW_TOKENS_DRAW_TOKENS_H_
