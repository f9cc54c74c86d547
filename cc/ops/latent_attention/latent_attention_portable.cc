// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/latent_attention/latent_rows_inl.h"
// clang-format on

namespace pagemill::ops {

const LatentKernel kLatentPortable = kKernel;

}  // namespace pagemill::ops
