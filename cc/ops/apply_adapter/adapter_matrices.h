// File: cc/ops/apply_adapter/adapter_matrices.h
// The matrices of one adapter for one linear layer as kernels read them: plain data, borrowed.
// packed_adapter.h makes it of what a checkpoint stores.
#ifndef PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_MATRICES_H_
#define PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_MATRICES_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

// Bounds the memory of a row's A x, which kernels keep on the stack.
inline constexpr int64_t kMaxAdapterRank = 512;

struct AdapterMatrices {
  DType dtype = DType::kF32;      // of a and b: f32 or bf16
  int32_t rank = 0;               // 0 if `a` and `b` are missing
  const void* a = nullptr;        // [rank, K]
  const void* b = nullptr;        // [rank, M]: B transposed
  float scale = 1;                // of B A
  const float* gain = nullptr;    // [M], of the layer's result; null: 1
  const float* offset = nullptr;  // [M]; null: 0

  bool empty() const { return rank == 0 && gain == nullptr && offset == nullptr; }
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_MATRICES_H_
