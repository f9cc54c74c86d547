// File: sycl/ops/kv_write/kv_write.h
// Enqueues `kv_write`, for ops that it is a part of.
#ifndef PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_H_
#define PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_H_

#include "cc/ops/op.h"

namespace pagemill::sycl {

void RunKvWrite(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_H_
