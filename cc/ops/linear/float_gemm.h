// File: cc/ops/linear/float_gemm.h
// Runs a FloatGemm over a call of `linear`: reads the operands, chooses between the direct and the
// tiled path, and splits the weight rows over the threads. Also what the reference shares with it.
#ifndef PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_H_
#define PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_H_

#include <cstdint>

#include "cc/ops/linear/float_gemm_kernels.h"
#include "cc/ops/op.h"

namespace pagemill::ops::linear {

// Bytes between the rows of a slice of dequantized weights. An odd number of cache lines: rows a
// power of two apart would fall into the same few sets of the L1 cache.
int64_t FloatStride(int64_t k);

// Of matrix `index` of the call, [0, call.outputs.size()).
Operands ReadOperands(const OpCall& call, size_t index);

void RunFloatGemm(const FloatGemm& kernels, const OpCall& call, KernelContext& context);
// For any FloatGemm: a slice of dequantized weight rows per thread.
int64_t FloatGemmWorkspaceBytes(const OpCall& call, int32_t num_threads);

void RunReference(const OpCall& call, KernelContext& context);
// One dequantized weight row per thread.
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_FLOAT_GEMM_H_
