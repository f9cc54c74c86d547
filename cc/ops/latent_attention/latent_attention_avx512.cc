// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/latent_attention/latent_rows_inl.h"
// clang-format on

namespace pagemill::ops {

const LatentKernel kLatentAvx512 = kKernel;

}  // namespace pagemill::ops
