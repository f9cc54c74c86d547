// File: cc/ops/apply_adapter/apply_adapter.h
// Adds to the result of a linear layer what a low-rank adapter (LoRA, rsLoRA, DoRA) makes of its
// input, by the adapter of each row. Also for embeddings, whose input is an id, and for experts.
//
//   z[n] = gain * y[n] + offset + scale * B (A x[n])     with those of table[entry(n)]
//   z[n] = y[n]                                          if slot(n) < 0, or the entry is empty
//
//   inputs   x        act [N, ...]  rows of K elements: the layer's input; or i32 [N]: row n is the
//                                   unit vector of x[n], in [0, K)
//            slots    i32 [T]       a slot of the table, or -1; null: -1 for all
//            rows     i32 [N]       slot(n) = slots[rows[n]]; or missing (a view of rank 0): slots[n]
//            experts  i32 [N, J]    experts of row n; or missing
//            y        act or f32 [N, ...]  rows of M elements: the layer's result, bias included
//            table    i8 [M, K]     `data` points to AdapterMatrices (adapter_matrices.h), one for
//                                   each slot, for a layer of this shape
//   outputs  z        as y
//   aliasing z may be y; then rows without adapter are not touched
//
// y and table may occur up to kMaxAdaptedLayers times, each pair with an output: layers that read
// one x.
//
// With experts a table is i8 [E, M, K]: it has an entry for each expert of slot 0, then of slot 1.
// y is [N, J, ...], of M elements a choice, and x [N, J, ...] or one row for all choices of a token.
// An id outside [0, E) names no expert: z is y.
//
// Result: A x in f32, scaled, then B times that added to gain * y + offset. Each sum has an order
// that depends on K, the rank and the kernel alone, so z[n] has the same bits whatever the other
// rows and layers, their adapters and the number of threads.
//
// Error bound: |z - exact| <= ApplyAdapterErrorBound(K, rank) * S, where S is
// |gain y| + |offset| + |scale| sum_r |B_mr| sum_k |A_rk x_k|: no product is on a path of more than
// K + rank + 5 roundings.
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
#define PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr size_t kMaxAdaptedLayers = 4;

namespace apply_adapter {
inline constexpr size_t kX = 0, kSlots = 1, kRows = 2, kExperts = 3;
inline constexpr size_t ResultOperand(size_t layer) { return 4 + 2 * layer; }
inline constexpr size_t TableOperand(size_t layer) { return 5 + 2 * layer; }
}  // namespace apply_adapter

// A linear layer of a call. Its rows are the choices of all tokens.
struct AdaptedLayer {
  TensorView y, z;
  const AdapterMatrices* table = nullptr;
  int64_t out = 0;  // M

  float* RowOf(const TensorView& view, int64_t row, int64_t choices) const {
    return view.Row<float>(row / choices) + row % choices * out;
  }
};

struct ApplyAdapterArgs {
  static constexpr int64_t kNone = -1;

  TensorView x;
  const int32_t* slots = nullptr;    // null: no row has an adapter
  const int32_t* rows = nullptr;     // null: row n has slots[n]
  const int32_t* experts = nullptr;  // null: none
  int64_t choices = 1;               // J
  int64_t num_experts = 1;           // E
  int64_t in = 0;                    // K
  int64_t num_rows = 0;              // N * J
  std::array<AdaptedLayer, kMaxAdaptedLayers> layers;
  size_t num_layers = 0;

  // The entry of the tables for a row, kNone if it has no adapter.
  int64_t EntryOf(int64_t row) const {
    if (slots == nullptr) return kNone;
    const int64_t token = row / choices;
    const int64_t slot = slots[rows == nullptr ? token : rows[token]];
    if (slot < 0 || experts == nullptr) return slot < 0 ? kNone : slot;
    const int32_t expert = experts[row];
    return expert < 0 || expert >= num_experts ? kNone : slot * num_experts + expert;
  }
  // Null if x has ids.
  const float* InputOf(int64_t row) const {
    if (x.dtype == DType::kI32) return nullptr;
    const bool shared = x.RowElements() == in;
    return x.Row<float>(row / choices) + (shared ? 0 : row % choices * in);
  }
  int64_t IdOf(int64_t row) const { return *x.Row<const int32_t>(row); }
};

ApplyAdapterArgs ToApplyAdapterArgs(const OpCall& call);
const OpDefinition& ApplyAdapterOp();

void ApplyAdapterReference(const OpCall& call, KernelContext& context);

inline double ApplyAdapterErrorBound(int64_t k, int64_t rank) {
  return static_cast<double>(k + rank + 5) * 0x1.02p-24;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_APPLY_ADAPTER_APPLY_ADAPTER_H_
