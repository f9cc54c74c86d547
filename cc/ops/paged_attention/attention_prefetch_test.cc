#include "cc/ops/paged_attention/attention_prefetch.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

using conformance::PagedBatch;
using conformance::PagedRequest;

// An AttentionGroup with operator==.
struct Group {
  int32_t block = 0, offset = 0, kv_head = 0;
  bool operator==(const Group&) const = default;
};

// Tiles over a batch of decoding requests with two KV heads of one row each.
class Batch {
 public:
  Batch(int32_t block_size, std::vector<PagedRequest> requests)
      : batch_(block_size, std::move(requests), conformance::Random(1)),
        q_(DType::kF32, {batch_.view().num_tokens, 2, 4}),
        plan_(static_cast<size_t>(AttentionPlan::Bytes(batch_.view().num_tokens, 1, 2))) {
    args_ = {.q = q_.view(), .cache = {}, .y = q_.view(), .batch = &batch_.view(), .kv_heads = 2};
    shape_ = {.head_dim = 4, .group = 1, .kv_heads = 2, .block_size = block_size};
  }

  AttentionTileList Tiles() {
    AttentionPlan* const plan = new (plan_.data()) AttentionPlan;
    PlanAttention(args_, shape_, plan);
    return AttentionTileList(args_, shape_, *plan);
  }
  // The groups of tile `index` from group `from` on, in reading order.
  std::vector<Group> Groups(const AttentionTileList& tiles, int64_t index, int32_t from = 0) {
    std::vector<Group> groups;
    const AttentionTile tile = tiles.Tile(index);
    for (int32_t g = from; g < tiles.Groups(tile).last; ++g) {
      groups.push_back(
          {tile.block_table[g * 16 / shape_.block_size], g * 16 % shape_.block_size, tile.kv_head});
    }
    return groups;
  }

 private:
  PagedBatch batch_;
  conformance::TestTensor q_;
  PagedAttentionArgs args_;
  AttentionShape shape_;
  std::vector<std::byte> plan_;
};

std::vector<Group> Prefetched(const AttentionPrefetch* prefetch) {
  std::vector<Group> groups;
  for (int32_t i = 0; i < prefetch->count; ++i) {
    const AttentionGroup& g = prefetch->groups[i];
    groups.push_back({g.block, g.offset, g.kv_head});
  }
  return groups;
}

void Append(const std::vector<Group>& from, std::vector<Group>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

TEST(AttentionPrefetcher, PrefetchesEachGroupOnceASplitBeforeItIsRead) {
  for (const int32_t block_size : {16, 64}) {
    Batch batch(block_size, {{.context = 700, .tokens = 1}, {.context = 319, .tokens = 1}});
    const AttentionTileList tiles = batch.Tiles();
    AttentionPrefetcher prefetcher;
    std::vector<Group> read, prefetched;
    for (int64_t tile = 0; tile < tiles.size(); ++tile) {
      const AttentionRange splits = tiles.Splits(tiles.Tile(tile));
      Append(batch.Groups(tiles, tile), &read);
      for (int32_t split = splits.first; split < splits.last; ++split) {
        Append(Prefetched(prefetcher.GroupsFor(tiles, tile, split)), &prefetched);
      }
    }
    // All groups except those of the first split, which no other split precedes.
    EXPECT_EQ(prefetched, std::vector<Group>(read.begin() + kAttentionSplitGroups, read.end()));
  }
}

TEST(AttentionPrefetcher, RestartsAfterASkip) {
  Batch batch(16, {{.context = 700, .tokens = 1}, {.context = 700, .tokens = 1}});
  const AttentionTileList tiles = batch.Tiles();
  AttentionPrefetcher prefetcher;
  prefetcher.GroupsFor(tiles, 0, 0);
  const std::vector<Group> prefetched = Prefetched(prefetcher.GroupsFor(tiles, 2, 1));
  std::vector<Group> expected = batch.Groups(tiles, 2, 2 * kAttentionSplitGroups);
  Append(batch.Groups(tiles, 3), &expected);
  expected.resize(kAttentionSplitGroups);
  EXPECT_EQ(prefetched, expected);
}

TEST(AttentionPrefetcher, SkipsSharedSplits) {
  Batch batch(16, {{.context = 319, .tokens = 1}, {.context = 319, .tokens = 1}});
  AttentionTileList tiles = batch.Tiles();
  tiles.StartAt(1);
  AttentionPrefetcher prefetcher;
  // Four groups of each tile: four tiles lie between what is read and what is prefetched.
  EXPECT_EQ(Prefetched(prefetcher.GroupsFor(tiles, 0, 1)), std::vector<Group>());
  Batch more(16, std::vector<PagedRequest>(4, {.context = 319, .tokens = 1}));
  AttentionTileList of_more = more.Tiles();
  of_more.StartAt(1);
  AttentionPrefetcher other;
  EXPECT_EQ(Prefetched(other.GroupsFor(of_more, 0, 1)),
            more.Groups(of_more, 4, kAttentionSplitGroups));
}

TEST(AttentionPrefetcher, PrefetchesNothingAfterTheLastTile) {
  Batch batch(16, {{.context = 15, .tokens = 1}});
  const AttentionTileList tiles = batch.Tiles();
  AttentionPrefetcher prefetcher;
  EXPECT_EQ(prefetcher.GroupsFor(tiles, 0, 0)->count, 0);
  EXPECT_EQ(prefetcher.GroupsFor(tiles, 1, 0)->count, 0);
}

}  // namespace
}  // namespace pagemill::ops
