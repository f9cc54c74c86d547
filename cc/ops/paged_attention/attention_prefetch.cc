#include "cc/ops/paged_attention/attention_prefetch.h"

#include <algorithm>

namespace pagemill::ops {

AttentionPrefetcher::Place AttentionPrefetcher::BeginOf(const AttentionTileList& tiles,
                                                        int64_t index) {
  const AttentionRange groups = tiles.Groups(tiles.Tile(index));
  return {.tile = index, .group = groups.first, .last = std::max(groups.first, groups.last)};
}

template <typename Visit>
void AttentionPrefetcher::Advance(const AttentionTileList& tiles, int32_t groups,
                                  const Visit& visit) {
  while (groups > 0) {
    const int32_t count = std::min(groups, next_.last - next_.group);
    visit(next_, count);
    next_.group += count;
    groups -= count;
    if (next_.group < next_.last) continue;
    if (next_.tile + 1 >= tiles.size()) return;
    next_ = BeginOf(tiles, next_.tile + 1);
  }
}

const AttentionPrefetch* AttentionPrefetcher::GroupsFor(const AttentionTileList& tiles,
                                                        int64_t index, int32_t split) {
  const bool continues =
      expected_.tile == index && expected_.group / kAttentionSplitGroups == split;
  Place now = continues ? expected_ : BeginOf(tiles, index);
  now.group = std::max(now.group, split * kAttentionSplitGroups);
  const int32_t last = std::min(now.last, (split + 1) * kAttentionSplitGroups);
  if (!continues) {
    next_ = now;
    Advance(tiles, kAttentionSplitGroups, [](const Place&, int32_t) {});
  }
  prefetch_.count = 0;
  Advance(tiles, last - now.group, [&](const Place& place, int32_t count) {
    const AttentionTile tile = tiles.Tile(place.tile);
    const int32_t block_size = tiles.block_size();
    for (int32_t i = 0; i < count; ++i) {
      const int32_t key = (place.group + i) * kAttentionKeyGroup;
      prefetch_.groups[prefetch_.count++] = {.block = tile.block_table[key / block_size],
                                             .offset = key % block_size,
                                             .kv_head = tile.kv_head};
    }
  });
  expected_ = {.tile = index, .group = last, .last = now.last};
  if (last == now.last && index + 1 < tiles.size()) expected_ = BeginOf(tiles, index + 1);
  return &prefetch_;
}

}  // namespace pagemill::ops
