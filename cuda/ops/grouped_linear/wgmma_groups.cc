#include "cuda/ops/grouped_linear/wgmma_groups.h"

#include <cstdint>

#include "cc/ops/linear/linear.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/grouped_linear/wgmma_group_tiles.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {
namespace {

using wgmma_groups::GroupsCall, wgmma_groups::kColumns, wgmma_groups::kGroupRows;
using wgmma_groups::WeightOperand;

// For groups of many rows: each byte of shared memory is part of as many products as registers
// allow.
struct LargeTile {
  static constexpr ProductType kType = ProductType::kBf16;
  static constexpr int kParts = 2, kRows = kGroupRows, kStages = 4;
};
// For single rows, of which weights are all that takes time: more tiles than multiprocessors, and
// as many bytes under way.
struct SmallTile {
  static constexpr ProductType kType = ProductType::kBf16;
  static constexpr int kParts = 1, kRows = 16, kStages = 12;
};

constexpr int64_t kElementBytes = sizeof(BFloat16);

}  // namespace

bool FitsWgmmaGroups(const device::Capabilities& caps, const ops::OpCall& call) {
  return wgmma_groups::FitGroupTiles(caps, call, [](const TensorView& stack) {
    return stack.dtype == DType::kBF16 && stack.parts == nullptr &&
           stack.shape[2] > 0 && stack.shape[2] % kColumns<LargeTile> == 0;
  });
}

bool WgmmaGroupsTake(const ops::OpCall& call) {
  return wgmma_groups::AreGroupsAligned(call, [](const TensorView& stack) {
    return AreReadOnTensorCores(stack) &&
           stack.row_stride_bytes % (stack.shape[2] * kElementBytes) == 0;
  });
}

void MultiplyWgmmaGroups(const ops::OpCall& call, ops::KernelContext& context) {
  const auto x = RowsOf<const uint8_t>(call.inputs[0]);
  GroupsCall groups = {.routing = Route(call, kGroupRows, context),
                       .x = x,
                       .x_step = RoutedShape::Of(call, 0).x_step * kElementBytes,
                       .x_scales = {},
                       .x_scale_step = 0,
                       .num_products = static_cast<int32_t>(call.outputs.size()),
                       .products = {}};
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& stack = call.inputs[WeightOperand(i)];
    groups.products[i] = {.stack = stack.data,
                          .row_bytes = stack.shape[2] * kElementBytes,
                          .matrix_bytes = stack.row_stride_bytes,
                          .scales = {},
                          .shape = RoutedShape::Of(call, i),
                          .bias = BiasesOf(call, i),
                          .y = RowsOf<BFloat16>(call.outputs[i])};
  }
  wgmma_groups::RunGroups<SmallTile, LargeTile>(groups, static_cast<GpuStream&>(*context.stream));
}

}  // namespace pagemill::gpu
