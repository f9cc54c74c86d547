// File: cuda/ops/embedding/embedding.h
// Kernels of `embedding` (cc/ops/embedding/embedding.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_EMBEDDING_EMBEDDING_H_
#define PAGEMILL_CUDA_OPS_EMBEDDING_EMBEDDING_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> EmbeddingKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_EMBEDDING_EMBEDDING_H_
