#include "cuda/ops/grouped_linear/group_tensor_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/group_product.h"
#include "cuda/ops/linear/tensor_core_tiles.h"

namespace pagemill::gpu {
namespace {

struct TensorCoreTiles {
  static constexpr bool kAreInstructions = kHasMma;
  static constexpr int kFewRows = 8;
  static constexpr int kSomeRows = 32;
  static constexpr int kManyRows = 64;
  template <typename W>
  using Few = FewRows<GroupProduct<W>, 1>;
  template <typename W>
  using Some = FewRows<GroupProduct<W>, 4>;
  template <typename W>
  using Many = ManyRows<GroupProduct<W>, 2>;
};

}  // namespace

void MultiplyGroupsOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyGroups<TensorCoreTiles>(call, context);
}

}  // namespace pagemill::gpu
