#include "cuda/ops/paged_attention/matrix_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/paged_attention/attend_matrix_item.h"
#include "cuda/ops/paged_attention/attention_items.h"

namespace pagemill::gpu {
namespace {

struct MatrixCoreItems {
  static constexpr bool kAreInstructions = kHasWideMma;
  static constexpr int64_t kMaxHeadDim = 128;
  template <typename C, int kChunks, bool kMany>
  using Item = AttendMatrixItem<C, kChunks, kMany>;
};

}  // namespace

bool SupportsAttentionOnMatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && HasMatrixCores(caps) && FitsItems<MatrixCoreItems>(caps, call);
}

void AttendOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  AttendByItems<MatrixCoreItems>(call, context);
}

}  // namespace pagemill::gpu
