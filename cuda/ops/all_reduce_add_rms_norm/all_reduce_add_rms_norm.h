// File: cuda/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h
// The kernels of `all_reduce_add_rms_norm`, as those of cuda/ops/kernels.h.
#ifndef PAGEMILL_CUDA_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_
#define PAGEMILL_CUDA_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> AllReduceAddRmsNormKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ALL_REDUCE_ADD_RMS_NORM_ALL_REDUCE_ADD_RMS_NORM_H_
