// File: cuda/ops/gated_activation/gated_activation.h
// Kernels of `gated_activation` (cc/ops/gated_activation/gated_activation.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_
#define PAGEMILL_CUDA_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> GatedActivationKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_ACTIVATION_GATED_ACTIVATION_H_
