#include <cstdint>

#include "cc/ops/linear/linear.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/grouped_linear/wgmma_group_tiles.h"
#include "cuda/ops/grouped_linear/wgmma_groups.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/rounded_groups.h"

namespace pagemill::gpu {
namespace {

using wgmma_groups::GroupsCall, wgmma_groups::kColumns, wgmma_groups::kGroupRows;
using wgmma_groups::WeightOperand;

// As those of bf16, with one part: sums of a stage are beside those of all.
struct LargeF8Tile {
  static constexpr ProductType kType = ProductType::kF8E4M3;
  static constexpr int kParts = 1, kRows = kGroupRows, kStages = 6;
};
struct SmallF8Tile {
  static constexpr ProductType kType = ProductType::kF8E4M3;
  static constexpr int kParts = 1, kRows = 16, kStages = 11;
};
static_assert(kColumns<LargeF8Tile> == kF8Columns);

}  // namespace

bool FitsWgmmaF8Groups(const device::Capabilities& caps, const ops::OpCall& call) {
  return wgmma_groups::FitGroupTiles(caps, call, HaveF8Stages);
}

bool WgmmaF8GroupsTake(const ops::OpCall& call) {
  return wgmma_groups::AreGroupsAligned(call, AreF8StagesRead);
}

int64_t WgmmaF8GroupsBytes(const ops::OpCall& call) {
  return RoundedGroups::Of(call.inputs[0]).bytes();
}

void MultiplyWgmmaF8Groups(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const auto layout = RoundedGroups::Of(x);
  std::byte* const memory = context.workspace.data();
  layout.Round(x, memory, *context.stream);
  const Rows<uint8_t> rounded = layout.Values(memory);
  const Rows<float> scales = layout.Scales(memory);
  // Behind them is what Route() needs, whose alignment is less than theirs.
  ops::KernelContext behind = context;
  behind.workspace = context.workspace.subspan(static_cast<size_t>(layout.bytes()));
  const int64_t x_step = RoutedShape::Of(call, 0).x_step;
  GroupsCall groups = {.routing = Route(call, kGroupRows, behind),
                       .x = {rounded.data, rounded.stride},
                       .x_step = x_step,
                       .x_scales = {scales.data, scales.stride},
                       .x_scale_step = x_step / kF8Columns,
                       .num_products = static_cast<int32_t>(call.outputs.size()),
                       .products = {}};
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const auto stack = F8Weights::Of(call.inputs[WeightOperand(i)]);
    groups.products[i] = {.stack = stack.data,
                          .row_bytes = stack.row_bytes,
                          .matrix_bytes = stack.matrix_bytes,
                          .scales = F8StageScales::Of(stack),
                          .shape = RoutedShape::Of(call, i),
                          .bias = BiasesOf(call, i),
                          .y = RowsOf<BFloat16>(call.outputs[i])};
  }
  wgmma_groups::RunGroups<SmallF8Tile, LargeF8Tile>(groups, static_cast<GpuStream&>(*context.stream));
}

}  // namespace pagemill::gpu
