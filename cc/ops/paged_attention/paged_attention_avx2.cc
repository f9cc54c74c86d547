// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx2.h"
#include "cc/ops/paged_attention/attention_tile_inl.h"
// clang-format on

namespace pagemill::ops {

const AttentionKernels kAttentionAvx2 = kKernels;

}  // namespace pagemill::ops
