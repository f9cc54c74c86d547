#include "cuda/ops/grouped_linear/group_matrix_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/group_product.h"
#include "cuda/ops/linear/matrix_core_tiles.h"

namespace pagemill::gpu {
namespace {

// As `linear` has them (matrix_cores.cc).
template <int kLanes>
struct MatrixCoreTiles {
  static constexpr bool kAreInstructions = true;
  static constexpr int kFewRows = 16;
  static constexpr int kSomeRows = 32;
  static constexpr int kManyRows = 64;
  static constexpr int kMostRows = 64;
  template <typename W>
  using Few = MatrixCoreTile<GroupProduct<W>, kLanes, W::kLiesInRows ? 1 : 4, 1>;
  template <typename W>
  using Some = MatrixCoreTile<GroupProduct<W>, kLanes, W::kLiesInRows ? 1 : 4, 2>;
  template <typename W>
  using Many = MatrixCoreTile<GroupProduct<W>, kLanes, 2, 4>;
  template <typename W>
  using Most = Many<W>;
};

}  // namespace

template <int kLanes>
void MultiplyGroupsOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyGroups<MatrixCoreTiles<kLanes>>(call, context);
}

template void MultiplyGroupsOnMatrixCores<32>(const ops::OpCall&, ops::KernelContext&);
template void MultiplyGroupsOnMatrixCores<64>(const ops::OpCall&, ops::KernelContext&);

}  // namespace pagemill::gpu
