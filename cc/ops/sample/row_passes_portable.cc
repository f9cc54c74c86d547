// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/sample/row_passes_inl.h"
// clang-format on

namespace pagemill::ops {

const RowPasses kRowPassesPortable = MakeRowPasses("portable");

}  // namespace pagemill::ops
