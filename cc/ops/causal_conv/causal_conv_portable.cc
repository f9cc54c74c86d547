// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/causal_conv/conv_row_inl.h"
// clang-format on

namespace pagemill::ops {

void ConvRowPortable(const ConvRow& row) { ConvolveRow(row); }

}  // namespace pagemill::ops
