// File: cuda/ops/apply_adapter/apply_adapter.h
// Kernels of `apply_adapter` (cc/ops/apply_adapter/apply_adapter.h) on GPUs. The table and the
// matrices that its entries point to are in the GPU's memory.
#ifndef PAGEMILL_CUDA_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
#define PAGEMILL_CUDA_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ApplyAdapterKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
