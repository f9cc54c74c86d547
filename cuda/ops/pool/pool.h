// File: cuda/ops/pool/pool.h
// Kernels of `pool` (cc/ops/pool/pool.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_POOL_POOL_H_
#define PAGEMILL_CUDA_OPS_POOL_POOL_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> PoolKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_POOL_POOL_H_
