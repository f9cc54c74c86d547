// File: cc/ops/paged_attention/attention_prefetch.h
// Selects the key groups that a kernel prefetches: for each group of 16 keys that a thread reads,
// the group that it will read one split later, across splits, KV heads and requests, in tile order.
// If a thread skips ahead, selection restarts at the split that it computes.
//
//   AttentionPrefetcher prefetcher;                                   // one per thread
//   scratch.prefetch = prefetcher.GroupsFor(tiles, index, split);     // before kernel.attend()
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PREFETCH_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PREFETCH_H_

#include <cstdint>

#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/attention_tile_list.h"

namespace pagemill::ops {

class AttentionPrefetcher {
 public:
  // The groups to prefetch while `split` of tile `index` is computed. They follow those of the last
  // call if the split follows the last call's. Valid until the next call.
  const AttentionPrefetch* GroupsFor(const AttentionTileList& tiles, int64_t index, int32_t split);

 private:
  // Groups [group, last) of a tile.
  struct Place {
    int64_t tile = -1;
    int32_t group = 0;
    int32_t last = 0;
  };
  static Place BeginOf(const AttentionTileList& tiles, int64_t index);
  // Moves next_ by `groups`, at most to the end of the last tile; calls visit(place, count) for
  // each tile.
  template <typename Visit>
  void Advance(const AttentionTileList& tiles, int32_t groups, const Visit& visit);

  Place expected_;  // where the next split begins if the thread skips nothing
  Place next_;      // the next groups to prefetch
  AttentionPrefetch prefetch_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_PREFETCH_H_
