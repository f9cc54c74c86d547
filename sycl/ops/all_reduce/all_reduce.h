// File: sycl/ops/all_reduce/all_reduce.h
// Enqueues `all_reduce`, for ops that it is a part of.
#ifndef PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_H_
#define PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_H_

#include "cc/ops/op.h"

namespace pagemill::sycl {

void RunAllReduce(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_H_
