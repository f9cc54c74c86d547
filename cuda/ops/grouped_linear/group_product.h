// File: cuda/ops/grouped_linear/group_product.h
// `grouped_linear` of bf16 activations in tiles of products, for kernels of tensor cores
// (tensor_core_tiles.h) and of matrix cores (matrix_core_tiles.h). Rows of x are aligned, and the
// workspace has GroupArrays::Bytes() (expert_groups.h) for groups of 4 rows.
//
//   struct Tiles {
//     static constexpr bool kAreInstructions = kHasMma;  // else no kernel is compiled
//     static constexpr int kFewRows = 8;                 // of a Few, for any W
//     static constexpr int kSomeRows = 32;
//     static constexpr int kManyRows = 64;
//     static constexpr int kMostRows = 128;
//     template <typename W>
//     using Few = FewRows<GroupProduct<W>, 1>;
//     template <typename W>
//     using Some = FewRows<GroupProduct<W>, 4>;
//     template <typename W>
//     using Many = ManyRowsOf<GroupProduct<W>, 2>;
//     template <typename W>
//     using Most = ManyRowsOf<GroupProduct<W>, 4>;
//   };
//   MultiplyGroups<Tiles>(call, context);
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_PRODUCT_H_

#include <cstdint>

#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/routed_rows.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

// Rows of an expert, on average, from which on larger groups are worth their empty rows. Every
// group reads the expert's weights again: up to half as many rows as the smallest groups of tensor
// cores have, only a few experts have more than one of those. The first two are not timed.
inline constexpr int64_t kSomeRowsOfExpert = 4;
inline constexpr int64_t kManyRowsOfExpert = 32;
inline constexpr int64_t kMostRowsOfExpert = 128;  // from 64 on a prompt was 8 % slower

// Parameters of a product.
struct RoutedProduct {
  RoutedShape shape;
  Rows<const BFloat16> x;
  Rows<const float> biases;
  Rows<BFloat16> y;
};

// The product of a group, as tensor_core_tiles.h has it.
template <typename Weights>
struct GroupProduct {
  using W = Weights;
  using Columns = Bf16Columns;
  using Sum = float;

  Routing routing;
  ExpertGroup group;
  RoutedProduct of;
  W w;
  int64_t rows, outputs, columns;

  PAGEMILL_DEVICE const Columns* FirstOfX() const {
    return reinterpret_cast<const Columns*>(of.x.data);
  }
  PAGEMILL_DEVICE const Columns* RowOfX(int64_t index) const {
    const int32_t row = routing.RowAt(group.begin + static_cast<int32_t>(index));
    const auto choices = static_cast<int32_t>(routing.ids.choices);
    return reinterpret_cast<const Columns*>(of.x[row / choices] +
                                            row % choices * of.shape.x_step);
  }
  PAGEMILL_DEVICE typename W::Row RowOfW(int64_t output) const { return w.At(group.expert, output); }
  PAGEMILL_DEVICE Columns LoadW(const typename W::Row& row, int64_t first) const {
    return LoadInBf16<W>(row, first);
  }
  PAGEMILL_DEVICE BFloat16* TargetOf(int64_t index) const {
    const int32_t row = routing.RowAt(group.begin + static_cast<int32_t>(index));
    const auto choices = static_cast<int32_t>(routing.ids.choices);
    return of.y[row / choices] + row % choices * of.shape.y_step;
  }
  PAGEMILL_DEVICE void Store(BFloat16* to, int64_t output, Sum sum) const {
    if constexpr (W::kHasFactors) sum *= RowOfW(output).Factor();
    if (of.biases.data != nullptr) sum += of.biases[group.expert][output];
    to[output] = FromFloat<BFloat16>(sum);
  }
};

// The outputs of a group of rows that have no expert, from `first_output` on.
template <typename Tile, typename P>
PAGEMILL_DEVICE void StoreZeros(const P& p, int64_t first_output) {
  for (int e = static_cast<int>(ThreadIndex().x); e < p.rows * Tile::kOutputs;
       e += Tile::kThreads) {
    const int64_t output = first_output + e % Tile::kOutputs;
    if (output < p.outputs) p.TargetOf(e / Tile::kOutputs)[output] = FromFloat<BFloat16>(0);
  }
}

// Block (group, outputs).
template <typename W, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks)
MultiplyGroupTile(Routing routing, RoutedProduct product, W stacks) {
  LetNextBegin();
  AwaitInputs();
  const ExpertGroup group = routing.GroupAt(BlockIndex().x);
  if (group.count == 0) return;
  const GroupProduct<W> p = {routing,     group,
                             product,     stacks,
                             group.count, product.shape.outputs,
                             product.shape.columns};
  const int64_t first_output = int64_t{BlockIndex().y} * Tile::kOutputs;
  if (group.expert != routing.ids.experts) return Tile::Multiply(p, first_output, 0);
  StoreZeros<Tile>(p, first_output);
}

template <typename Tile, typename W>
void LaunchGroups(const Routing& routing, const RoutedProduct& product, const W& stacks,
                  device::Stream& stream) {
  Launch(stream,
         {.blocks = {routing.num_groups, DivideUp(product.shape.outputs, Tile::kOutputs)},
          .threads = {Tile::kThreads},
          .shared_bytes = Tile::kSharedBytes,
          .early = true},
         MultiplyGroupTile<W, Tile>, routing, product, stacks);
}

enum class GroupSize { kFew, kSome, kMany, kMost };

inline GroupSize SizeOfGroups(const RoutedIds& ids) {
  if (AreAlone(ids) || ids.rows < kSomeRowsOfExpert * ids.experts) return GroupSize::kFew;
  if (ids.rows < kManyRowsOfExpert * ids.experts) return GroupSize::kSome;
  return ids.rows < kMostRowsOfExpert * ids.experts ? GroupSize::kMany : GroupSize::kMost;
}

template <typename Tiles>
void MultiplyGroups(const ops::OpCall& call, ops::KernelContext& context) {
  const GroupSize size = SizeOfGroups(IdsOf(call));
  const int32_t group_rows = size == GroupSize::kFew    ? Tiles::kFewRows
                             : size == GroupSize::kSome ? Tiles::kSomeRows
                             : size == GroupSize::kMany ? Tiles::kManyRows
                                                        : Tiles::kMostRows;
  const Routing routing = Route(call, group_rows, context);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const RoutedProduct product = {RoutedShape::Of(call, i),
                                   RowsOf<const BFloat16>(call.inputs[0]), BiasesOf(call, i),
                                   RowsOf<BFloat16>(call.outputs[i])};
    const bool are_shaped = WithShapedWeights(
        call.inputs[ops::grouped_linear::WeightOperand(i)], [&]<typename W>(const W& stacks) {
          if constexpr (Tiles::kAreInstructions) {
            using Few = typename Tiles::template Few<W>;
            using Some = typename Tiles::template Some<W>;
            using Many = typename Tiles::template Many<W>;
            using Most = typename Tiles::template Most<W>;
            static_assert(Few::kRows == Tiles::kFewRows && Some::kRows == Tiles::kSomeRows &&
                          Many::kRows == Tiles::kManyRows && Most::kRows == Tiles::kMostRows);
            switch (size) {
              case GroupSize::kFew:
                return LaunchGroups<Few>(routing, product, stacks, *context.stream);
              case GroupSize::kSome:
                return LaunchGroups<Some>(routing, product, stacks, *context.stream);
              case GroupSize::kMany:
                return LaunchGroups<Many>(routing, product, stacks, *context.stream);
              case GroupSize::kMost:
                return LaunchGroups<Most>(routing, product, stacks, *context.stream);
            }
          }
        });
    PAGEMILL_CHECK(are_shaped);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_PRODUCT_H_
