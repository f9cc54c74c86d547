// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/sample/row_passes_inl.h"
// clang-format on

namespace pagemill::ops {

const RowPasses kRowPassesAvx512 = MakeRowPasses("avx512");

}  // namespace pagemill::ops
