#include "cuda/ops/grouped_linear/group_matrix_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/group_product.h"
#include "cuda/ops/linear/matrix_core_tiles.h"

namespace pagemill::gpu {
namespace {

// As `linear` has them (matrix_cores.cc).
struct MatrixCoreTiles {
  static constexpr bool kAreInstructions = kHasWideMma;
  static constexpr int kFewRows = 16;
  static constexpr int kSomeRows = 32;
  static constexpr int kManyRows = 64;
  static constexpr int kMostRows = 64;
  template <typename W>
  using Few = MatrixCoreTile<GroupProduct<W>, W::kLiesInRows ? 1 : 4, 1>;
  template <typename W>
  using Some = MatrixCoreTile<GroupProduct<W>, W::kLiesInRows ? 1 : 4, 2>;
  template <typename W>
  using Many = MatrixCoreTile<GroupProduct<W>, 2, 4>;
  template <typename W>
  using Most = Many<W>;
};

}  // namespace

void MultiplyGroupsOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyGroups<MatrixCoreTiles>(call, context);
}

}  // namespace pagemill::gpu
