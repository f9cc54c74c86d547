// File: cuda/ops/grouped_linear/routed_rows.h
// The rows of a call of `grouped_linear` in groups of one expert, for its kernels.
//
//   const Routing routing = Route(call, /*group_rows=*/4, context);
//   Launch(..., {.blocks = {routing.num_groups, ...}}, MultiplyGroup<...>, routing, ...);
//   ...
//   const ExpertGroup group = routing.GroupAt(BlockIndex().x);
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_ROUTED_ROWS_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_ROUTED_ROWS_H_

#include <cstdint>

#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/op.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/expert_groups.h"

namespace pagemill::gpu {

inline constexpr int64_t kMaxExperts = 4096;

// True if each row is a group of its own: they are not worth a sort, and few share an expert, whose
// weights each of them reads.
inline bool AreAlone(const RoutedIds& ids) { return ids.rows <= 64 && 2 * ids.rows <= ids.experts; }

// Groups and the order of their rows; null: row r is group r.
struct Routing {
  const ExpertGroup* data;
  const int32_t* order;
  RoutedIds ids;
  uint32_t num_groups;

  PAGEMILL_DEVICE ExpertGroup GroupAt(int64_t group) const {
    if (data != nullptr) return data[group];
    return {ids.ExpertOf(group), static_cast<int32_t>(group), 1};
  }
  PAGEMILL_DEVICE int32_t RowAt(int32_t index) const {
    return data == nullptr ? index : order[index];
  }
};

// A matrix of each expert, and where the rows of x and y of a choice are.
struct RoutedShape {
  int64_t outputs, columns;  // M, K
  int64_t x_step, y_step;    // elements between the choices of a token

  static RoutedShape Of(const ops::OpCall& call, size_t output) {
    const TensorView& w = call.inputs[ops::grouped_linear::WeightOperand(output)];
    const int64_t outputs = w.shape[1], columns = w.shape[2];
    return {outputs, columns, call.inputs[0].RowElements() == columns ? 0 : columns, outputs};
  }
};

inline RoutedIds IdsOf(const ops::OpCall& call) {
  const Rows<const int32_t> ids = RowsOf<const int32_t>(call.inputs[1]);
  const TensorView& stack = call.inputs[ops::grouped_linear::WeightOperand(0)];
  return {ids.data, ids.stride, call.inputs[1].shape[1], call.inputs[1].Elements(),
          static_cast<int32_t>(stack.shape[0])};
}

// Makes groups of up to `group_rows` in the workspace, which has GroupArrays::Bytes() for groups of
// as many rows or fewer.
inline Routing Route(const ops::OpCall& call, int32_t group_rows, ops::KernelContext& context) {
  const RoutedIds ids = IdsOf(call);
  if (AreAlone(ids)) return {nullptr, nullptr, ids, static_cast<uint32_t>(ids.rows)};
  const GroupArrays arrays = GroupArrays::At(context.workspace.data(), ids, group_rows);
  GroupRows(ids, group_rows, arrays, *context.stream);
  return {arrays.groups, arrays.order, ids, static_cast<uint32_t>(arrays.max_groups)};
}

inline Rows<const float> BiasesOf(const ops::OpCall& call, size_t output) {
  const TensorView& bias = call.inputs[ops::grouped_linear::BiasOperand(output)];
  return bias.rank == 0 ? Rows<const float>{} : RowsOf<const float>(bias);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_ROUTED_ROWS_H_
