// File: cuda/ops/gated_delta/gated_delta.h
// Kernels of `gated_delta` (cc/ops/gated_delta/gated_delta.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_GATED_DELTA_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_GATED_DELTA_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> GatedDeltaKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_GATED_DELTA_H_
