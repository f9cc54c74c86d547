// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/rotary/rotary_token_inl.h"
// clang-format on

namespace pagemill::ops {

const RotaryKernel kRotaryPortable = {ComputeAngles, RotateHeads};

}  // namespace pagemill::ops
