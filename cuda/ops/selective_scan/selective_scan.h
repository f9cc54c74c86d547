// File: cuda/ops/selective_scan/selective_scan.h
// Kernels of `selective_scan` (cc/ops/selective_scan/selective_scan.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_
#define PAGEMILL_CUDA_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> SelectiveScanKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SELECTIVE_SCAN_SELECTIVE_SCAN_H_
