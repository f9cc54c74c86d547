// File: sycl/ops/rotary/rotary.h
// Enqueues `rotary`, for ops that it is a part of.
#ifndef PAGEMILL_SYCL_OPS_ROTARY_ROTARY_H_
#define PAGEMILL_SYCL_OPS_ROTARY_ROTARY_H_

#include "cc/ops/op.h"

namespace pagemill::sycl {

void RunRotary(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ROTARY_ROTARY_H_
