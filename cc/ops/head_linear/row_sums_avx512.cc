// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/head_linear/row_sums_inl.h"
// clang-format on

namespace pagemill::ops {

const RowSumKernel kRowSumsAvx512 = kKernel;

}  // namespace pagemill::ops
