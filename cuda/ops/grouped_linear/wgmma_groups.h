// File: cuda/ops/grouped_linear/wgmma_groups.h
// `grouped_linear` of weights in bf16 or e4m3 on GPUs of compute capability 9.0, in the words of
// gpu_wgmma.h. Stages of a sum are added in the order of K, whichever rows are beside it. With
// weights of e4m3, kF8Columns columns of a row of x are rounded to that type with a scale of their
// own: the precision kF8 of linear.h.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// True for such a GPU and bf16, or weights that HaveF8Stages(), if the call is one for
// group_tensor_cores.h, too.
bool FitsWgmmaGroups(const device::Capabilities& caps, const ops::OpCall& call);
bool FitsWgmmaF8Groups(const device::Capabilities& caps, const ops::OpCall& call);

// True if vector loads can read and write where all of such a call lies.
bool WgmmaGroupsTake(const ops::OpCall& call);
bool WgmmaF8GroupsTake(const ops::OpCall& call);

// Of workspace, for x that is rounded, beside that of groups.
int64_t WgmmaF8GroupsBytes(const ops::OpCall& call);

// A call that they take. The workspace also has GroupArrays::Bytes() for groups of the tiles' size.
void MultiplyWgmmaGroups(const ops::OpCall& call, ops::KernelContext& context);
void MultiplyWgmmaF8Groups(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_WGMMA_GROUPS_H_
