#include "cuda/ops/grouped_linear/f8_group_matrix_cores.h"

#include <cstddef>
#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/group_product.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/linear/f8_matrix_core_tiles.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/rounded_groups.h"

namespace pagemill::gpu {
namespace {

// Parameters of the products of a stack.
struct RoutedF8Product {
  RoutedShape shape;
  Rows<uint8_t> x;
  Rows<float> x_scales;
  F8Weights stack;
  F8StageScales w_scales;
  Rows<const float> biases;
  Rows<BFloat16> y;

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(x.data);
    visit(x_scales.data);
    visit(stack.data);
    visit(w_scales.data);
    visit(biases.data);
    visit(y.data);
  }
};

// The product of a group, as f8_matrix_core_tiles.h has it.
struct F8GroupProduct {
  using Sum = float;

  Routing routing;
  ExpertGroup group;
  RoutedF8Product of;
  int64_t rows, outputs, columns;

  // Which row of activations, and which choice of it.
  struct Place {
    int64_t token, choice;
  };
  PAGEMILL_DEVICE Place PlaceOf(int64_t index) const {
    const int32_t row = routing.RowAt(group.begin + static_cast<int32_t>(index));
    const auto choices = static_cast<int32_t>(routing.ids.choices);
    return {row / choices, row % choices};
  }
  PAGEMILL_DEVICE const uint8_t* RowOfX(int64_t index) const {
    const Place place = PlaceOf(index);
    return of.x[place.token] + place.choice * of.shape.x_step;
  }
  PAGEMILL_DEVICE const float* ScalesOfX(int64_t index) const {
    const Place place = PlaceOf(index);
    return of.x_scales[place.token] + place.choice * (of.shape.x_step / kF8Columns);
  }
  PAGEMILL_DEVICE const uint8_t* RowOfW(int64_t output) const {
    return of.stack.data + group.expert * of.stack.matrix_bytes + output * of.stack.row_bytes;
  }
  PAGEMILL_DEVICE bool HasScalesOfRows() const { return of.w_scales.step == 0; }
  PAGEMILL_DEVICE float ScaleOfW(int64_t output, int stage) const {
    return of.w_scales.data[group.expert * of.w_scales.of_matrix +
                            of.w_scales.IndexOf(static_cast<int>(output), stage)];
  }
  PAGEMILL_DEVICE BFloat16* TargetOf(int64_t index) const {
    const Place place = PlaceOf(index);
    return of.y[place.token] + place.choice * of.shape.y_step;
  }
  PAGEMILL_DEVICE void Store(BFloat16* to, int64_t output, float sum) const {
    if (HasScalesOfRows()) sum *= ScaleOfW(output, 0);
    if (of.biases.data != nullptr) sum += of.biases[group.expert][output];
    to[output] = FromFloat<BFloat16>(sum);
  }
};

// Block (group, outputs).
template <typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks)
MultiplyF8GroupTile(Routing routing, RoutedF8Product product) {
  const ExpertGroup group = routing.GroupAt(BlockIndex().x);
  if (group.count == 0) return;
  const F8GroupProduct p = {routing,
                            group,
                            product,
                            group.count,
                            product.shape.outputs,
                            product.shape.columns};
  const int64_t first_output = int64_t{BlockIndex().y} * Tile::kOutputs;
  if (group.expert != routing.ids.experts) return Tile::Multiply(p, first_output, 0);
  StoreZeros<Tile>(p, first_output);
}

template <typename Tile>
void LaunchF8Groups(const Routing& routing, const RoutedF8Product& product, device::Stream& stream) {
  Launch(stream,
         {.blocks = {routing.num_groups, DivideUp(product.shape.outputs, Tile::kOutputs)},
          .threads = {Tile::kThreads}},
         MultiplyF8GroupTile<Tile>, routing, product);
}

}  // namespace

template <int kLanes>
void MultiplyF8GroupsOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  using Few = FewF8Rows<F8GroupProduct, kLanes>;
  using Many = ManyF8Rows<F8GroupProduct, kLanes>;
  const TensorView& x = call.inputs[0];
  const auto layout = RoundedGroups::Of(x);
  std::byte* const memory = context.workspace.data();
  layout.Round(x, memory, *context.stream);
  ops::KernelContext behind = context;
  behind.workspace = context.workspace.subspan(static_cast<size_t>(layout.bytes()));
  const bool are_few = SizeOfGroups(IdsOf(call)) == GroupSize::kFew;
  const Routing routing = Route(call, are_few ? Few::kRows : Many::kRows, behind);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const auto stack = F8Weights::Of(call.inputs[ops::grouped_linear::WeightOperand(i)]);
    const RoutedF8Product product = {.shape = RoutedShape::Of(call, i),
                                     .x = layout.Values(memory),
                                     .x_scales = layout.Scales(memory),
                                     .stack = stack,
                                     .w_scales = F8StageScales::Of(stack),
                                     .biases = BiasesOf(call, i),
                                     .y = RowsOf<BFloat16>(call.outputs[i])};
    if (are_few) {
      LaunchF8Groups<Few>(routing, product, *context.stream);
    } else {
      LaunchF8Groups<Many>(routing, product, *context.stream);
    }
  }
}

template void MultiplyF8GroupsOnMatrixCores<32>(const ops::OpCall&, ops::KernelContext&);
template void MultiplyF8GroupsOnMatrixCores<64>(const ops::OpCall&, ops::KernelContext&);

}  // namespace pagemill::gpu
