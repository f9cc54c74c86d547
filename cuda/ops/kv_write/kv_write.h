// File: cuda/ops/kv_write/kv_write.h
// Kernels of `kv_write` (cc/ops/kv_write/kv_write.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_KV_WRITE_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_KV_WRITE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> KvWriteKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KV_WRITE_KV_WRITE_H_
