// File: cuda/ops/add_rms_norm/add_rms_norm.h
// Kernels of `add_rms_norm` (cc/ops/add_rms_norm/add_rms_norm.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
#define PAGEMILL_CUDA_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> AddRmsNormKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
