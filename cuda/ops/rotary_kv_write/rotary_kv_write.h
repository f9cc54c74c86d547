// File: cuda/ops/rotary_kv_write/rotary_kv_write.h
// Kernels of `rotary_kv_write` (cc/ops/rotary_kv_write/rotary_kv_write.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_
#define PAGEMILL_CUDA_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> RotaryKvWriteKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_
