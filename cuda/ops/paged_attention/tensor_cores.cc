#include "cuda/ops/paged_attention/tensor_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/paged_attention/attend_item.h"
#include "cuda/ops/paged_attention/attention_items.h"

namespace pagemill::gpu {
namespace {

struct TensorCoreItems {
  static constexpr bool kAreInstructions = kHasMma;
  static constexpr int64_t kMaxHeadDim = 256;
  template <typename C, int kChunks, bool kMany>
  using Item = AttendItem<C, kChunks, kMany>;
};

}  // namespace

bool SupportsAttentionOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && FitsItems<TensorCoreItems>(caps, call);
}

void AttendOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  AttendByItems<TensorCoreItems>(call, context);
}

}  // namespace pagemill::gpu
