// File: cuda/ops/gated_delta/delta_operands.h
// Parameters of a call of gated_delta as its kernels have them.
//
//   Launch(stream, shape, Kernel, OperandsOf<T>(args), HeadParts::Of(args), ...);
//   ...
//   const HeadOffsets head_at = parts.At(head);  // in a row of args.data
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_OPERANDS_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_OPERANDS_H_

#include <cmath>
#include <cstdint>

#include "cc/ops/gated_delta/gated_delta.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// What all heads have in common.
template <typename T>
struct DeltaOperands {
  const T* data;  // qkv
  int64_t stride;
  Rows<const T> a, b;
  const float* a_log;
  const float* dt_bias;
  Rows<float> states;
  Rows<T> y;
  int keys, values, rates;
  float q_scale, share_scale;
  bool has_quads;  // q and k are whole, aligned Vectors of four elements
};

template <typename T>
DeltaOperands<T> OperandsOf(const ops::GatedDeltaArgs& args) {
  const Rows<const T> qkv = RowsOf<const T>(args.qkv);
  return {.data = qkv.data,
          .stride = qkv.stride,
          .a = RowsOf<const T>(args.a),
          .b = RowsOf<const T>(args.b),
          .a_log = args.a_log.Data<const float>(),
          .dt_bias = args.dt_bias.Data<const float>(),
          .states = RowsOf<float>(args.state),
          .y = RowsOf<T>(args.y),
          .keys = static_cast<int>(args.keys),
          .values = static_cast<int>(args.values),
          .rates = static_cast<int>(args.rates),
          .q_scale = 1 / std::sqrt(static_cast<float>(args.keys)),
          .share_scale = args.share_scale,
          .has_quads =
              args.keys % 4 == 0 && args.values % 4 == 0 && HasAlignedRows(args.qkv)};
}

// Offsets in a row of qkv.
struct HeadOffsets {
  int q, k, v;
};

// Offsets of heads come in parts of `size` heads: `first` is that of the first head, each further
// head of a part adds `of_head`, each further part `of_part`.
struct HeadParts {
  HeadOffsets first, of_head, of_part;
  int size;

  static HeadParts Of(const ops::GatedDeltaArgs& args) {
    // Heads of a group, or of one turn over all groups.
    const int64_t part = args.in_turn ? args.groups : args.heads / args.groups;
    const auto offsets_of = [&](int64_t head) -> HeadOffsets {
      return {static_cast<int>(args.QOffset(head)), static_cast<int>(args.KOffset(head)),
              static_cast<int>(args.VOffset(head))};
    };
    const HeadOffsets first = offsets_of(0);
    const auto from_first = [&](int64_t head) -> HeadOffsets {
      const HeadOffsets other = offsets_of(head % args.heads);
      return {other.q - first.q, other.k - first.k, other.v - first.v};
    };
    return {first, from_first(1), from_first(part), static_cast<int>(part)};
  }

  PAGEMILL_DEVICE HeadOffsets At(int head) const {
    const int part = head / size, i = head % size;
    return {first.q + part * of_part.q + i * of_head.q, first.k + part * of_part.k + i * of_head.k,
            first.v + part * of_part.v + i * of_head.v};
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_OPERANDS_H_
