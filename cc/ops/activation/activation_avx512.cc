// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/activation/activation_row_inl.h"
// clang-format on

namespace pagemill::ops {

void ActivationRowAvx512(const ActivationRow& row) { ActivateRow(row); }

}  // namespace pagemill::ops
