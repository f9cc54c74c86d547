// File: cuda/ops/activation/activation.h
// Kernels of `activation` (cc/ops/activation/activation.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATION_H_
#define PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATION_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ActivationKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATION_H_
