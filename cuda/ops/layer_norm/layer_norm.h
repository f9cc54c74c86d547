// File: cuda/ops/layer_norm/layer_norm.h
// Kernels of `layer_norm` (cc/ops/layer_norm/layer_norm.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_LAYER_NORM_LAYER_NORM_H_
#define PAGEMILL_CUDA_OPS_LAYER_NORM_LAYER_NORM_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> LayerNormKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LAYER_NORM_LAYER_NORM_H_
