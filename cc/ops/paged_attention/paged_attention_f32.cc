// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec.h"
#include "cc/ops/paged_attention/attention_tile_inl.h"
// clang-format on

namespace pagemill::ops {

const AttentionKernels PAGEMILL_VEC_NAME(kAttention) = kKernels;

}  // namespace pagemill::ops
