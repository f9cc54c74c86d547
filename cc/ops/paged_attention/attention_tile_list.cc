#include "cc/ops/paged_attention/attention_tile_list.h"

#include <algorithm>

namespace pagemill::ops {

void PlanAttention(const PagedAttentionArgs& args, const AttentionShape& shape,
                   AttentionPlan* plan) {
  *plan = {};
  const AttentionTileList tiles(args, shape, *plan);
  AttentionTileRows* const begin = plan->rows();
  AttentionTileRows* end = begin;
  for (int32_t request = 0; request < args.batch->num_requests; ++request) {
    plan->longest_context = std::max<int64_t>(plan->longest_context, args.batch->seq_lens[request]);
    const int32_t count = (tiles.Rows(request) + kAttentionTileRows - 1) / kAttentionTileRows;
    for (int32_t i = count - 1; i >= 0; --i) {
      const int32_t first_row = i * kAttentionTileRows;
      *end++ = {.request = request, .first_row = first_row, .cost = tiles.Cost(request, first_row)};
    }
  }
  plan->num_rows = end - begin;
  // The costliest first, so that threads finish together.
  std::sort(begin, end, [](const AttentionTileRows& a, const AttentionTileRows& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.request != b.request ? a.request < b.request : a.first_row > b.first_row;
  });
}

// Counts multiplications, and reading keys and values, which costs about as much as 6 rows.
int64_t AttentionTileList::Cost(int32_t request, int32_t first_row) const {
  constexpr int32_t kReadingRows = 6;
  const AttentionTile tile = TileOf({request, first_row, 0}, /*kv_head=*/0);
  return static_cast<int64_t>(Splits(tile).size()) * (tile.rows + kReadingRows);
}

int32_t AttentionTileList::Rows(int32_t request) const {
  const int32_t* start = args_.batch->query_start + request;
  return (start[1] - start[0]) * shape_.group;
}

AttentionTile AttentionTileList::TileOf(const AttentionTileRows& rows, int32_t kv_head) const {
  const BatchView& batch = *args_.batch;
  const int32_t first_token = batch.query_start[rows.request];
  AttentionTile tile;
  tile.kv_head = kv_head;
  tile.first_query = first_token;
  PointTo(first_token, &tile);
  tile.block_table = batch.block_table + rows.request * batch.block_table_stride;
  tile.first_row = rows.first_row;
  tile.rows = std::min(kAttentionTileRows, Rows(rows.request) - rows.first_row);
  tile.seq_len = batch.seq_lens[rows.request];
  tile.first_position = tile.seq_len - (batch.query_start[rows.request + 1] - first_token);
  if (args_.encoder_keys || args_.decoder_keys) tile.encoder_end = batch.encoder_ends[first_token];
  if (args_.item_ends) tile.item_ends = batch.item_ends + first_token;
  if (args_.key_ranges != nullptr) tile.key_ranges = args_.key_ranges + 2 * int64_t{first_token};
  return tile;
}

void AttentionTileList::PointTo(int64_t token, AttentionTile* tile) const {
  const int64_t offset = static_cast<int64_t>(tile->kv_head) * shape_.group * shape_.head_dim;
  tile->q = args_.q.Row<float>(token) + offset;
  tile->y = args_.y.Row<float>(token) + offset;
  tile->q_stride = args_.q.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  tile->y_stride = args_.y.row_stride_bytes / static_cast<int64_t>(sizeof(float));
}

AttentionRange AttentionTileList::In(const AttentionTile& tile, int32_t keys) const {
  const int32_t first_position = tile.first_position + tile.first_row / shape_.group;
  const int32_t last_position =
      tile.first_position + (tile.first_row + tile.rows - 1) / shape_.group;
  const int32_t low =
      std::max(first_split_ * kAttentionSplit, FirstKey(shape_, tile, first_position));
  const int32_t high = EndOfKeys(shape_, tile, last_position);
  return {.first = low / keys, .last = (high + keys - 1) / keys};
}

int64_t AttentionTileList::NumSharedTiles() const {
  const int64_t rows = int64_t{args_.batch->num_tokens} * shape_.group;
  return (rows + kAttentionTileRows - 1) / kAttentionTileRows * shape_.kv_heads;
}

AttentionTile AttentionTileList::SharedTile(int64_t index, int32_t splits) const {
  AttentionTile tile;
  tile.kv_head = static_cast<int32_t>(index % shape_.kv_heads);
  tile.first_row = static_cast<int32_t>(index / shape_.kv_heads) * kAttentionTileRows;
  tile.rows = std::min(kAttentionTileRows, args_.batch->num_tokens * shape_.group - tile.first_row);
  PointTo(/*token=*/0, &tile);
  tile.block_table = args_.batch->block_table;
  tile.first_position = splits * kAttentionSplit - 1;
  tile.seq_len = splits * kAttentionSplit;
  return tile;
}

}  // namespace pagemill::ops
