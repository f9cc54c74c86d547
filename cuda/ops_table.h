// File: cuda/ops_table.h
// The ops of GPUs and their kernels: the table that a program is bound with.
//
//   Target target = {.ops = GpuOps(), .capabilities = {.kind = DeviceKind::kGpu, .gpu = ...}};
#ifndef PAGEMILL_CUDA_OPS_TABLE_H_
#define PAGEMILL_CUDA_OPS_TABLE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

// Sorted by name.
std::span<const ops::OpDefinition> GpuOps();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TABLE_H_
