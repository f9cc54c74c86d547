// File: cuda/ops/grouped_linear/f8_group_matrix_cores.h
// `grouped_linear` of weights in fp8 and activations that are rounded to fp8, on matrix cores, with
// the sums of `linear` there (f8_matrix_core_tiles.h).
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_F8_GROUP_MATRIX_CORES_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_F8_GROUP_MATRIX_CORES_H_

#include "cc/ops/op.h"

namespace pagemill::gpu {

// Of operands that FitsF8MatrixCores() (f8_matrix_cores.h), weights that AreF8StagesRead()
// (f8_stages.h), and aligned rows of x. The workspace has the bytes of RoundedGroups
// (rounded_groups.h), and behind them GroupArrays::Bytes() for groups of 4 rows. kLanes: of warps, 32
// or 64.
template <int kLanes>
void MultiplyF8GroupsOnMatrixCores(const ops::OpCall& call, ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_F8_GROUP_MATRIX_CORES_H_
