// File: cuda/ops/moe_combine/moe_combine.h
// Kernels of `moe_combine` (cc/ops/moe_combine/moe_combine.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_MOE_COMBINE_MOE_COMBINE_H_
#define PAGEMILL_CUDA_OPS_MOE_COMBINE_MOE_COMBINE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> MoeCombineKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_MOE_COMBINE_MOE_COMBINE_H_
