// clang-format off: the instruction set comes first.
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/vec/vec_probe_inl.h"
// clang-format on

namespace pagemill::ops {

const VecProbe kVecProbePortable = kProbe;

}  // namespace pagemill::ops
