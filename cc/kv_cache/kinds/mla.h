// File: cc/kv_cache/kinds/mla.h
// Multi-head latent attention: every token of the context is read, as with full attention, but as
// one compressed vector. The pages are smaller for it, or hold more tokens: the group's block_size
// and pages_per_block say so.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_MLA_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_MLA_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/kinds/full.h"

namespace pagemill::kv_cache {

class MultiHeadLatentAttention final : public FullAttention {
 public:
  using FullAttention::FullAttention;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_MLA_H_
