// File: cuda/ops/latent_attention/latent_attention.h
// Kernels of `latent_attention` (cc/ops/latent_attention/latent_attention.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_
#define PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> LatentAttentionKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ATTENTION_H_
