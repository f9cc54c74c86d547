// File: cuda/ops/grouped_linear/group_matrix_cores.h
// `grouped_linear` on matrix cores, with the sums of `linear` there (matrix_core_tiles.h).
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_MATRIX_CORES_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_MATRIX_CORES_H_

#include "cc/ops/op.h"

namespace pagemill::gpu {

// Of operands that FitsMatrixCores() (matrix_cores.h), weights that AreReadOnTensorCores()
// (tensor_cores.h), and aligned rows of x. The workspace has GroupArrays::Bytes() for
// groups of 4 rows. kLanes: of warps, 32 or 64.
template <int kLanes>
void MultiplyGroupsOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_GROUP_MATRIX_CORES_H_
