// File: cuda/ops/latent_write/latent_write.h
// Kernels of `latent_write` (cc/ops/latent_write/latent_write.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_WRITE_H_
#define PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_WRITE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> LatentWriteKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_WRITE_H_
