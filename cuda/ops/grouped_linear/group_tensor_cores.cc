#include "cuda/ops/grouped_linear/group_tensor_cores.h"

#include <type_traits>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/grouped_linear/group_product.h"
#include "cuda/ops/linear/staged_rows.h"
#include "cuda/ops/linear/tensor_core_tiles.h"

namespace pagemill::gpu {
namespace {

struct TensorCoreTiles {
  static constexpr bool kAreInstructions = kHasMma;
  static constexpr int kFewRows = 8;
  static constexpr int kSomeRows = 32;
  static constexpr int kManyRows = 64;
  static constexpr int kMostRows = 128;
  template <typename W>
  using Few = FewRows<GroupProduct<W>, 1>;
  template <typename W>
  using Some = std::conditional_t<kAreStaged<GroupProduct<W>>, StagedRows<GroupProduct<W>, 1>,
                                  FewRows<GroupProduct<W>, 4>>;
  template <typename W>
  using Many = ManyRowsOf<GroupProduct<W>, 2>;
  template <typename W>
  using Most = ManyRowsOf<GroupProduct<W>, 4>;
};

}  // namespace

void MultiplyGroupsOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  MultiplyGroups<TensorCoreTiles>(call, context);
}

}  // namespace pagemill::gpu
