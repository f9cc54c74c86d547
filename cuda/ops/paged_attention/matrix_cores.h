// File: cuda/ops/paged_attention/matrix_cores.h
// paged_attention on matrix cores of GPUs with warps of kLanes, 32 or 64: as on tensor cores
// (tensor_cores.h), but a warp reads the keys and values of its 16 rows for itself.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_MATRIX_CORES_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_MATRIX_CORES_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// GPUs with the instructions and registers, which of those with 32 lanes gfx12 has alone, and
// operands that FitsItems() (attention_items.h).
template <int kLanes>
bool SupportsAttentionOnMatrixCores(const device::Capabilities& caps, const ops::OpCall& call);

// As AttendByItems().
template <int kLanes>
void AttendOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_MATRIX_CORES_H_
