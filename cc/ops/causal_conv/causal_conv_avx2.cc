// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/causal_conv/conv_row_inl.h"
// clang-format on

namespace pagemill::ops {

void ConvRowAvx2(const ConvRow& row) { ConvolveRow(row); }

}  // namespace pagemill::ops
