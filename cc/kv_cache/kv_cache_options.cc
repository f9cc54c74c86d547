#include "cc/kv_cache/kv_cache_options.h"

#include <algorithm>
#include <limits>
#include <string>

#include "cc/base/option_check.h"
#include "cc/kv_cache/eviction/policies.h"
#include "cc/kv_cache/kinds/kinds.h"

namespace pagemill::kv_cache {

Status KvCacheOptions::Validate() const {
  const int32_t least = groups.empty() ? 1 : 2;
  if (num_blocks < least) {
    return InvalidArgument("num_blocks is " + std::to_string(num_blocks) +
                           ", it must be at least " + std::to_string(least) +
                           " (block 0 is the null block)");
  }
  if (block_size < 1) {
    return InvalidArgument("block_size is " + std::to_string(block_size) +
                           ", it must be at least 1 token");
  }
  if (max_pinned_blocks < 0 || max_pinned_blocks > std::max(0, num_blocks - least)) {
    return InvalidArgument("max_pinned_blocks is " + std::to_string(max_pinned_blocks) +
                           ", it must be from 0 to " + std::to_string(num_blocks - least) +
                           " (num_blocks less " + std::to_string(least) + ")");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_events", max_events, 0));
  if (!(block_age_sample >= 0 && block_age_sample <= 1)) {
    return InvalidArgument("block_age_sample is " + std::to_string(block_age_sample) +
                           ", it must be from 0 to 1");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_step_tokens", max_step_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_steps_in_flight", max_steps_in_flight, 1));
  std::vector<Block> none(1);
  PAGEMILL_RETURN_IF_ERROR(MakeEvictionPolicy(eviction, &none).status());
  for (const KvGroupOptions& group : groups) {
    PAGEMILL_RETURN_IF_ERROR(MakeCacheKind(group, block_size).status());
  }
  return OkStatus();
}

int32_t KvCacheOptions::MaxRejectedTokens() const {
  int32_t most = std::numeric_limits<int32_t>::max();
  for (const KvGroupOptions& group : groups) {
    const StatusOr<std::unique_ptr<CacheKind>> kind = MakeCacheKind(group, block_size);
    most = std::min(most, (*kind)->traits().max_rejected_tokens);
  }
  return most;
}

int32_t KvCacheOptions::MaxPagesOfRequest(int32_t num_tokens) const {
  int32_t pages = 0;
  for (const KvGroupOptions& group : groups) {
    const int32_t blocks = (*MakeCacheKind(group, block_size))
                               ->MaxHeld(num_tokens, {}, {max_step_tokens, max_steps_in_flight});
    pages += group.pages_per_block * blocks;
  }
  return pages;
}

}  // namespace pagemill::kv_cache
