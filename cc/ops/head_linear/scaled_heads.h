// File: cc/ops/head_linear/scaled_heads.h
// Packing of weights with scales (cc/tensor/quantized.h): rows of bf16, which kernels multiply as
// stored. Each value times its scale is rounded once, by at most 2^-9 of it; that is exact for
// f8_e4m3 if scales are powers of two.
#ifndef PAGEMILL_CC_OPS_HEAD_LINEAR_SCALED_HEADS_H_
#define PAGEMILL_CC_OPS_HEAD_LINEAR_SCALED_HEADS_H_

#include <cstddef>
#include <cstdint>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops::head_linear {

// The functions of kScaledHeads. A weight is a stack of matrices, [J, M, K]; each begins at a
// multiple of 64 bytes of the packed copy.
int64_t ScaledHeadsBytes(const TensorView& weight);
Status PackScaledHeads(const TensorView& weight, std::byte* packed, device::ThreadPool& pool);
TensorView AsBf16(const TensorView& weight);

inline constexpr WeightPacking kScaledHeads = {.layout = "scaled heads in bf16, version 1",
                                               .inputs = 0b10,
                                               .bytes = ScaledHeadsBytes,
                                               .pack = PackScaledHeads,
                                               .view = AsBf16};

}  // namespace pagemill::ops::head_linear

#endif  // PAGEMILL_CC_OPS_HEAD_LINEAR_SCALED_HEADS_H_
