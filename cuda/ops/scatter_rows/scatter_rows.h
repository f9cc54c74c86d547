// File: cuda/ops/scatter_rows/scatter_rows.h
// Kernels of `scatter_rows` (cc/ops/scatter_rows/scatter_rows.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SCATTER_ROWS_SCATTER_ROWS_H_
#define PAGEMILL_CUDA_OPS_SCATTER_ROWS_SCATTER_ROWS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> ScatterRowsKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SCATTER_ROWS_SCATTER_ROWS_H_
