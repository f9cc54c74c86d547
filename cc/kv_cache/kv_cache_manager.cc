#include "cc/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cc/kv_cache/kinds/kinds.h"

namespace pagemill::kv_cache {

StatusOr<std::unique_ptr<KvCacheManager>> KvCacheManager::Create(const KvCacheOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  return std::make_unique<KvCacheManager>(options);
}

KvCacheManager::KvCacheManager(const KvCacheOptions& options)
    : options_(options),
      events_(options.max_events > 0 ? std::make_unique<EventLog>(options.max_events) : nullptr),
      ages_(options.block_age_sample > 0 ? std::make_unique<BlockAges>(options.block_age_sample)
                                         : nullptr),
      pool_(options.num_blocks, options.eviction, events_.get(), ages_.get()),
      hasher_(options.hash_algorithm) {
  PAGEMILL_CHECK(options.Validate().ok());
  prefix_grain_ = options.block_size;
  for (const KvGroupOptions& group : options.groups) {
    Group made;
    made.id = GroupId(static_cast<uint16_t>(groups_.size()));
    made.kind = *MakeCacheKind(group, options.block_size);
    made.traits = made.kind->traits();
    made.block_tokens = group.block_size == 0 ? options.block_size : group.block_size;
    made.stride = made.block_tokens / options.block_size;
    prefix_grain_ = std::lcm(prefix_grain_, made.block_tokens);
    made.pages = group.pages_per_block;
    cacheable_ = cacheable_ && made.traits.cacheable;
    checkpoints_ = checkpoints_ || made.traits.checkpoints;
    query_groups_.push_back({made.id, made.kind.get(), made.stride, made.traits});
    groups_.push_back(std::move(made));
  }
  caching_ = cacheable_ && options.enable_prefix_caching && !groups_.empty();
  std::stable_partition(query_groups_.begin(), query_groups_.end(),
                        [](const PrefixQuery::Group& group) { return group.traits.prefixes_nest; });
}

int32_t KvCacheManager::MaxHeld(const Group& group, int32_t num_tokens,
                                const RequestShape& shape) const {
  const PlanBounds bounds{options_.max_step_tokens, options_.max_steps_in_flight};
  return group.pages * group.kind->MaxHeld(num_tokens, shape, bounds);
}

int32_t KvCacheManager::NumBlocks(int32_t num_tokens, const RequestShape& shape) const {
  int32_t total = 0;
  for (const Group& group : groups_) total += MaxHeld(group, num_tokens, shape);
  return total;
}

int32_t KvCacheManager::NumMissingBlocks(const RequestBlocks& blocks, int32_t num_tokens) const {
  int32_t missing = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const int32_t held = blocks.empty() ? 0 : group.pages * blocks.progress_[g].num_held;
    missing += std::max(0, MaxHeld(group, num_tokens, blocks.shape_) - held);
  }
  return missing;
}

bool KvCacheManager::Reset() {
  if (!CanReset()) return false;
  ForgetContent();
  return true;
}

void KvCacheManager::ForgetContent() {
  while (!pins_.empty()) Unpin(pins_.begin()->first);
  pool_.Reset();
  ++generation_;
}

}  // namespace pagemill::kv_cache
