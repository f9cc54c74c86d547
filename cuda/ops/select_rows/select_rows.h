// File: cuda/ops/select_rows/select_rows.h
// Kernels of `select_rows` (cc/ops/select_rows/select_rows.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_SELECT_ROWS_SELECT_ROWS_H_
#define PAGEMILL_CUDA_OPS_SELECT_ROWS_SELECT_ROWS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> SelectRowsKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SELECT_ROWS_SELECT_ROWS_H_
