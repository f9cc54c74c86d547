// File: cc/ops/paged_attention/attention_tile_list.h
// Divides a batch into tiles for an AttentionKernel, with the range of keys that each tile sees.
//
//   PlanAttention(args, shape, plan);   // AttentionPlan::Bytes(), once for all equal layers
//   AttentionTileList tiles(args, shape, plan);
//   for (int64_t i = 0; i < tiles.size(); ++i) Run(tiles.Tile(i), tiles.Splits(tiles.Tile(i)));
//
// The costliest tiles come first; KV heads of the same rows are consecutive. Not thread-safe while
// StartAt() is called; otherwise constant.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_LIST_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_LIST_H_

#include <cstdint>

#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {

// Rows of one request that form a tile with each KV head.
struct AttentionTileRows {
  int32_t request;
  int32_t first_row;
  int64_t cost;
};

// The tiles of a batch, the same for all layers of one shape and window. The rows follow the
// struct.
struct AttentionPlan {
  int64_t num_rows = 0;
  int64_t longest_context = 0;  // tokens

  // Upper bound: each request is divided separately.
  static int64_t Bytes(int64_t tokens, int64_t group, int64_t kv_heads) {
    const int64_t rows = tokens * group * kv_heads / kAttentionTileRows + tokens + 1;
    return static_cast<int64_t>(sizeof(AttentionPlan)) +
           rows * static_cast<int64_t>(sizeof(AttentionTileRows));
  }
  AttentionTileRows* rows() { return reinterpret_cast<AttentionTileRows*>(this + 1); }
  const AttentionTileRows* rows() const {
    return reinterpret_cast<const AttentionTileRows*>(this + 1);
  }
};

// Reads the arrays of the batch, and no operand.
void PlanAttention(const PagedAttentionArgs& args, const AttentionShape& shape,
                   AttentionPlan* plan);

// [first, last).
struct AttentionRange {
  int32_t first = 0;
  int32_t last = 0;
  int32_t size() const { return last - first; }
};

class AttentionTileList {
 public:
  // The arguments outlive the list.
  AttentionTileList(const PagedAttentionArgs& args, const AttentionShape& shape,
                    const AttentionPlan& plan)
      : args_(args), shape_(shape), plan_(plan) {}

  int64_t size() const { return plan_.num_rows * shape_.kv_heads; }
  int32_t block_size() const { return shape_.block_size; }
  AttentionTile Tile(int64_t index) const {
    return TileOf(plan_.rows()[index / shape_.kv_heads],
                  static_cast<int32_t>(index % shape_.kv_heads));
  }
  int32_t Request(int64_t index) const { return plan_.rows()[index / shape_.kv_heads].request; }

  // Makes tiles begin at this split: earlier splits are the same for all rows.
  void StartAt(int32_t split) { first_split_ = split; }
  // The splits, and the groups of 16 keys, that hold keys which some row of the tile sees.
  AttentionRange Splits(const AttentionTile& tile) const { return In(tile, kAttentionSplit); }
  AttentionRange Groups(const AttentionTile& tile) const { return In(tile, kAttentionKeyGroup); }

  // A tile of rows of several requests, whose tokens are consecutive, as if they were rows of one
  // request with a context beyond the first `splits`; there are NumSharedTiles().
  AttentionTile SharedTile(int64_t index, int32_t splits) const;
  int64_t NumSharedTiles() const;

 private:
  friend void PlanAttention(const PagedAttentionArgs&, const AttentionShape&, AttentionPlan*);

  AttentionTile TileOf(const AttentionTileRows& rows, int32_t kv_head) const;
  AttentionRange In(const AttentionTile& tile, int32_t keys) const;
  void PointTo(int64_t token, AttentionTile* tile) const;
  int32_t Rows(int32_t request) const;
  int64_t Cost(int32_t request, int32_t first_row) const;

  const PagedAttentionArgs& args_;
  const AttentionShape& shape_;
  const AttentionPlan& plan_;
  int32_t first_split_ = 0;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_LIST_H_
