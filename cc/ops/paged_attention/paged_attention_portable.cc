// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
#include "cc/ops/paged_attention/attention_tile_inl.h"
// clang-format on

namespace pagemill::ops {

const AttentionKernels kAttentionPortable = kKernels;

}  // namespace pagemill::ops
