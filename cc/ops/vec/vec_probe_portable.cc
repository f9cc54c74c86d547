// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/vec/vec_probe_inl.h"
// clang-format on

namespace pagemill::ops {

const VecProbe kVecProbePortable = kProbe;

}  // namespace pagemill::ops
