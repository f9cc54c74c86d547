// File: cc/ops/apply_adapter/apply_adapter.h
// Adds to the result of a linear layer what a low-rank adapter (LoRA, rsLoRA, DoRA) makes of its
// input, by the adapter of each row.
//
//   z[n] = gain * y[n] + offset + scale * B (A x[n])        with those of table[slots[n]]
//   z[n] = y[n]                                             if slots[n] < 0, or the entry is empty
//
//   inputs   y      act [N, ...]  rows of M elements: the layer's result, its bias included
//            x      act [N, ...]  rows of K elements: the layer's input
//            slots  i32 [N]       an entry of the table, or -1
//            table  i8 [M, K]     `data` points to AdapterMatrices (adapter_matrices.h), one for
//                                 each slot, for a layer of this shape
//   outputs  z      act [N, ...]  rows of M elements
//   aliasing z may be y; then rows without adapter are not touched
//
// Result: A x in f32, scaled, then B times that added to gain * y + offset. Each sum has an order
// that depends on K, the rank and the kernel alone, so z[n] has the same bits whatever the other
// rows, their adapters and the number of threads.
//
// Error bound: |z - exact| <= ApplyAdapterErrorBound(K, rank) * S, where S is
// |gain y| + |offset| + |scale| sum_r |B_mr| sum_k |A_rk x_k|: no product is on a path of more than
// K + rank + 5 roundings.
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
#define PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_

#include <cstdint>

#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

struct ApplyAdapterArgs {
  TensorView y, x, z;
  const int32_t* slots = nullptr;
  const AdapterMatrices* table = nullptr;

  // The adapter of row n; null if it has none.
  const AdapterMatrices* Of(int64_t n) const {
    if (slots[n] < 0) return nullptr;
    const AdapterMatrices& adapter = table[slots[n]];
    return adapter.empty() ? nullptr : &adapter;
  }
};

ApplyAdapterArgs ToApplyAdapterArgs(const OpCall& call);
const OpDefinition& ApplyAdapterOp();

void ApplyAdapterReference(const OpCall& call, KernelContext& context);

inline double ApplyAdapterErrorBound(int64_t k, int64_t rank) {
  return static_cast<double>(k + rank + 5) * 0x1.02p-24;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
