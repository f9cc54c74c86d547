// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/rotary/rotary_token_inl.h"
// clang-format on

namespace pagemill::ops {

const RotaryKernel kRotaryAvx2 = {ComputeAngles, RotateHeads};

}  // namespace pagemill::ops
