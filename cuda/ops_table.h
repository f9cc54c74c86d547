// File: cuda/ops_table.h
// The kernels of GPUs, by op: what a plugin gives the engine, whose definitions of ops they are for.
//
//   static const ops::DeviceTable table(GpuKernels());
//   Target target = {.ops = table.definitions(),
//                    .capabilities = {.kind = DeviceKind::kGpu, .gpu = ...}};
#ifndef PAGEMILL_CUDA_OPS_TABLE_H_
#define PAGEMILL_CUDA_OPS_TABLE_H_

#include <span>

#include "cc/ops/device_table.h"

namespace pagemill::gpu {

// Sorted by name.
std::span<const ops::OpKernels> GpuKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TABLE_H_
