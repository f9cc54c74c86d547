// File: cc/ops/paged_attention/attention_ahead.h
// What a worker reads a split later, group of 16 keys by group, so that its kernel can prefetch as
// many of them as it reads now: across splits, KV heads and requests, in the order of tiles. Where
// a worker goes on elsewhere than with what follows, it starts anew.
//
//   AheadReader ahead;                                // one for each worker
//   scratch.ahead = ahead.While(tiles, index, split); // before kernel.attend()
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AHEAD_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AHEAD_H_

#include <cstdint>

#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/attention_tile_list.h"

namespace pagemill::ops {

class AheadReader {
 public:
  // What to prefetch while `split` of tile `index` is computed: the groups that follow those of the
  // last call, if the split follows the last call's. Valid until the next call.
  const AttentionAhead* While(const AttentionTileList& tiles, int64_t index, int32_t split);

 private:
  // A group of a tile, and those after it.
  struct Place {
    int64_t tile = -1;
    int32_t group = 0;
    int32_t last = 0;  // behind the tile's last one
  };
  static Place BeginOf(const AttentionTileList& tiles, int64_t index);
  // Steps over as many groups, up to the end of all tiles; `visit` receives those of each tile.
  template <typename Visit>
  void Advance(const AttentionTileList& tiles, int32_t groups, const Visit& visit);

  Place expected_;  // where the next split begins if the worker goes on
  Place ask_;
  AttentionAhead ahead_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_AHEAD_H_
