// clang-format off: the instruction set comes first.
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/rotary/rotary_token_inl.h"
// clang-format on

namespace pagemill::ops {

const RotaryKernel kRotaryPortable = {ComputeAngles, RotateHeads};

}  // namespace pagemill::ops
