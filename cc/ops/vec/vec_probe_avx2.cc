// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/vec/vec_probe_inl.h"
// clang-format on

namespace pagemill::ops {

const VecProbe kVecProbeAvx2 = kProbe;

}  // namespace pagemill::ops
