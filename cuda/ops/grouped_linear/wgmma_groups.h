// File: cuda/ops/grouped_linear/wgmma_groups.h
// `grouped_linear` of weights in bf16 on GPUs of compute capability 9.0, in the words of
// gpu_wgmma.h. Stages of a sum are added in the order of K, whichever rows are beside it.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// True for such a GPU and such weights, if the call is one for group_tensor_cores.h, too.
bool FitsWgmmaGroups(const device::Capabilities& caps, const ops::OpCall& call);

// True if vector loads can read and write where all of it lies.
bool WgmmaGroupsTake(const ops::OpCall& call);

// A call that WgmmaGroupsTake(). The workspace has GroupArrays::Bytes() for groups of its size.
void MultiplyWgmmaGroups(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_
