// File: cc/ops/head_linear/head_driver.h
// Runs the kernels of one instruction set over a call of `head_linear`. Threads share one list of
// (head, block of outputs).
#ifndef PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_DRIVER_H_
#define PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_DRIVER_H_

#include <cstdint>

#include "cc/ops/head_linear/row_sums.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/op.h"

namespace pagemill::ops::head_linear {

struct HeadKernels {
  const linear::PackedGemm* rows;  // products with rows of W
  const RowSumKernel* sums;        // transposed
  linear::DequantizeRows* dequantize;
};

void RunKernels(const HeadKernels& kernels, const OpCall& call, KernelContext& context);
int64_t WorkspaceBytes(const HeadKernels& kernels, const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops::head_linear

#endif  // PAGEMILL_CC_OPS_HEAD_LINEAR_HEAD_DRIVER_H_
