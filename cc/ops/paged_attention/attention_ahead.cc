#include "cc/ops/paged_attention/attention_ahead.h"

#include <algorithm>

namespace pagemill::ops {

AheadReader::Place AheadReader::BeginOf(const AttentionTileList& tiles, int64_t index) {
  const AttentionRange groups = tiles.Groups(tiles.Tile(index));
  return {.tile = index, .group = groups.first, .last = std::max(groups.first, groups.last)};
}

template <typename Visit>
void AheadReader::Advance(const AttentionTileList& tiles, int32_t groups, const Visit& visit) {
  while (groups > 0) {
    const int32_t count = std::min(groups, ask_.last - ask_.group);
    visit(ask_, count);
    ask_.group += count;
    groups -= count;
    if (ask_.group < ask_.last) continue;
    if (ask_.tile + 1 >= tiles.size()) return;
    ask_ = BeginOf(tiles, ask_.tile + 1);
  }
}

const AttentionAhead* AheadReader::While(const AttentionTileList& tiles, int64_t index,
                                         int32_t split) {
  const bool goes_on = expected_.tile == index && expected_.group / kAttentionSplitGroups == split;
  Place now = goes_on ? expected_ : BeginOf(tiles, index);
  now.group = std::max(now.group, split * kAttentionSplitGroups);
  const int32_t last = std::min(now.last, (split + 1) * kAttentionSplitGroups);
  if (!goes_on) {
    ask_ = now;
    Advance(tiles, kAttentionSplitGroups, [](const Place&, int32_t) {});
  }
  ahead_.count = 0;
  Advance(tiles, last - now.group, [&](const Place& place, int32_t count) {
    const AttentionTile tile = tiles.Tile(place.tile);
    const int32_t block_size = tiles.block_size();
    for (int32_t i = 0; i < count; ++i) {
      const int32_t key = (place.group + i) * kAttentionKeyGroup;
      ahead_.groups[ahead_.count++] = {.block = tile.block_table[key / block_size],
                                       .offset = key % block_size,
                                       .kv_head = tile.kv_head};
    }
  });
  expected_ = {.tile = index, .group = last, .last = now.last};
  if (last == now.last && index + 1 < tiles.size()) expected_ = BeginOf(tiles, index + 1);
  return &ahead_;
}

}  // namespace pagemill::ops
