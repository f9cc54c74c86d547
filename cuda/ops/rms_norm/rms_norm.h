// File: cuda/ops/rms_norm/rms_norm.h
// Kernels of `rms_norm` (cc/ops/rms_norm/rms_norm.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_H_
#define PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> RmsNormKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_H_
