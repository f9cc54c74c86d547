// File: sycl/ops/add_rms_norm/add_rms_norm.h
// Enqueues `add_rms_norm`, for ops that it is a part of.
#ifndef PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
#define PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_

#include "cc/ops/op.h"

namespace pagemill::sycl {

void RunAddRmsNorm(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ADD_RMS_NORM_ADD_RMS_NORM_H_
