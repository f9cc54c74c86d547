#include "cc/ops/paged_attention/emulated_attention.h"

// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/paged_attention/attention_amx_inl.h"
#include "cc/ops/tiles/emulated_tiles.h"
// clang-format on

namespace pagemill::ops {

const AttentionKernels kEmulatedAttentionAmx = kTileKernels<EmulatedTiles>;

}  // namespace pagemill::ops
