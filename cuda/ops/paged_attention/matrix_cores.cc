#include "cuda/ops/paged_attention/matrix_cores.h"

#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/paged_attention/attend_matrix_item.h"
#include "cuda/ops/paged_attention/attention_items.h"

namespace pagemill::gpu {
namespace {

template <int kLanes>
struct MatrixCoreItems {
  static constexpr bool kAreInstructions = true;
  static constexpr int64_t kMaxHeadDim = 128;
  template <typename C, int kChunks, bool kMany>
  using Item = AttendMatrixItem<C, kLanes, kChunks, kMany>;
};

}  // namespace

template <int kLanes>
bool SupportsAttentionOnMatrixCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const bool has_registers = kLanes == 64 || caps.gpu.compute_major >= 12;
  return OnEveryGpu(caps, call) && HasMatrixCores(caps, kLanes) && has_registers &&
         FitsItems<MatrixCoreItems<kLanes>>(caps, call);
}

template <int kLanes>
void AttendOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context) {
  AttendByItems<MatrixCoreItems<kLanes>>(call, context);
}

template bool SupportsAttentionOnMatrixCores<32>(const device::Capabilities&, const ops::OpCall&);
template bool SupportsAttentionOnMatrixCores<64>(const device::Capabilities&, const ops::OpCall&);
template void AttendOnMatrixCores<32>(const ops::OpCall&, ops::KernelContext&);
template void AttendOnMatrixCores<64>(const ops::OpCall&, ops::KernelContext&);

}  // namespace pagemill::gpu
