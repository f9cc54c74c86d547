// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/vec/vec_probe_inl.h"
// clang-format on

namespace pagemill::ops {

const VecProbe kVecProbeAvx512 = kProbe;

}  // namespace pagemill::ops
