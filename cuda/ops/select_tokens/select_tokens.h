// File: cuda/ops/select_tokens/select_tokens.h
// Kernels of `select_tokens` (cc/ops/select_tokens/select_tokens.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SELECT_TOKENS_SELECT_TOKENS_H_
#define PAGEMILL_CUDA_OPS_SELECT_TOKENS_SELECT_TOKENS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> SelectTokensKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SELECT_TOKENS_SELECT_TOKENS_H_
