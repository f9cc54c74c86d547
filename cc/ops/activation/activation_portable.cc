// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/activation/activation_row_inl.h"
// clang-format on

namespace pagemill::ops {

void ActivationRowPortable(const ActivationRow& row) { ActivateRow(row); }

}  // namespace pagemill::ops
