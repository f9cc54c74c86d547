// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/sample/row_passes_inl.h"
// clang-format on

namespace pagemill::ops {

const RowPasses kRowPassesAvx2 = MakeRowPasses("avx2");

}  // namespace pagemill::ops
