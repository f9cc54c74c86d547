// File: cc/ops/linear/int8_driver.h
// Runs an Int8KernelSet over a call of `linear`: quantizes x once into the workspace, chooses
// between the direct and the tiled path, and splits the weight rows over the threads.
#ifndef PAGEMILL_CC_OPS_LINEAR_INT8_DRIVER_H_
#define PAGEMILL_CC_OPS_LINEAR_INT8_DRIVER_H_

#include <cstdint>

#include "cc/ops/linear/int8_kernel_set.h"
#include "cc/ops/op.h"

namespace pagemill::ops::linear {

void RunInt8KernelSet(const Int8KernelSet& kernels, const OpCall& call, KernelContext& context);
// The quantized rows of x, and a panel for each thread.
int64_t Int8WorkspaceBytes(const Int8KernelSet& kernels, const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_INT8_DRIVER_H_
