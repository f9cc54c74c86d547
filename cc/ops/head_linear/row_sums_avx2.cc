// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/head_linear/row_sums_inl.h"
// clang-format on

namespace pagemill::ops {

const RowSumKernel kRowSumsAvx2 = kKernel;

}  // namespace pagemill::ops
