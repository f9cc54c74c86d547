// File: cuda/ops/state_space_scan/state_space_scan.h
// Kernels of `state_space_scan` (cc/ops/state_space_scan/state_space_scan.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_
#define PAGEMILL_CUDA_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> StateSpaceScanKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATE_SPACE_SCAN_STATE_SPACE_SCAN_H_
