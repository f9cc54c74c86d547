// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/rms_norm/rms_norm_row_inl.h"
// clang-format on

namespace pagemill::ops {

void RmsNormRowAvx2(const RmsNormRow& row) { NormalizeRow(row); }

}  // namespace pagemill::ops
