#include "cuda/ops/paged_attention/attention_plan.h"

#include <algorithm>

#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/ops/paged_attention/attention_scores.h"

namespace pagemill::gpu {
namespace {

// Tiles of at least this many splits get states before those of fewer: the longest contexts first.
constexpr int32_t kSplitRounds[] = {128, 32, 8, 2};

AttentionCapacity CapacityOf(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles) {
  return AttentionCapacity::Of(args.q.shape[0], args.q.shape[1] / args.kv_heads, args.kv_heads,
                               tiles);
}

int32_t NumSplits(const AttentionItem& item) { return item.end_split - item.first_split; }

class Planner {
 public:
  Planner(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles,
          std::span<std::byte> plan)
      : batch_(*args.batch),
        params_(ParamsOf(args)),
        group_(static_cast<int32_t>(args.q.shape[1]) / args.kv_heads),
        tiles_(tiles),
        capacity_(CapacityOf(args, tiles)),
        header_(*reinterpret_cast<AttentionPlanHeader*>(plan.data())) {
    const AttentionPlanView view = ViewOf(plan.data(), capacity_);
    few_ = const_cast<AttentionItem*>(view.few);
    many_ = const_cast<AttentionItem*>(view.many);
    merges_ = const_cast<MergeItem*>(view.merges);
  }

  void Make() {
    header_ = {};
    int32_t below = INT32_MAX;
    for (const int32_t splits : kSplitRounds) {
      ForTiles([&](const AttentionItem& tile, bool few) {
        if (few && NumSplits(tile) >= splits && NumSplits(tile) < below) AddSplits(tile);
      });
      below = splits;
    }
    ForTiles([&](const AttentionItem& tile, bool few) {
      if (!few) many_[header_.num_many++] = tile;
      if (few && NumSplits(tile) < below) few_[header_.num_few++] = tile;
    });
    // The longest begin first.
    const auto longer = [](const AttentionItem& a, const AttentionItem& b) {
      return NumSplits(a) > NumSplits(b);
    };
    std::sort(few_, few_ + header_.num_few, longer);
    std::sort(many_, many_ + header_.num_many, longer);
  }

 private:
  // Calls body(tile, few) for the tiles of all requests, with all splits that a row sees.
  template <typename Body>
  void ForTiles(const Body& body) const {
    for (int32_t request = 0; request < batch_.num_requests; ++request) {
      const int32_t tokens = batch_.query_start[request + 1] - batch_.query_start[request];
      const int32_t rows = tokens * group_, seq_len = batch_.seq_lens[request];
      const int32_t tile_rows = rows <= tiles_.few_rows ? kWarpRows : tiles_.many_rows;
      for (int32_t row = 0; row < rows; row += tile_rows) {
        const auto keys = [&](int32_t token) {
          return VisibleKeys(params_, {.token = batch_.query_start[request] + token,
                                       .position = seq_len - tokens + token,
                                       .seq_len = seq_len});
        };
        const int64_t low = keys(row / group_).low;
        const int64_t high = keys((std::min(row + tile_rows, rows) - 1) / group_).high;
        body({.request = request,
              .first_row = row,
              .first_split = static_cast<int32_t>(low / kSplitKeys),
              .end_split = static_cast<int32_t>((high + kSplitKeys - 1) / kSplitKeys),
              .state = -1},
             rows <= tiles_.few_rows);
      }
    }
  }

  // Every split by itself if there are states for them, or all together.
  void AddSplits(const AttentionItem& tile) {
    if (num_states_ + NumSplits(tile) > capacity_.states) {
      few_[header_.num_few++] = tile;
      return;
    }
    merges_[header_.num_merges++] = {.request = tile.request,
                                     .first_row = tile.first_row,
                                     .first_state = num_states_,
                                     .num_states = NumSplits(tile)};
    for (int32_t split = tile.first_split; split < tile.end_split; ++split) {
      few_[header_.num_few++] = {.request = tile.request,
                                 .first_row = tile.first_row,
                                 .first_split = split,
                                 .end_split = split + 1,
                                 .state = num_states_++};
    }
  }

  const ops::BatchView& batch_;
  const AttentionParams params_;
  const int32_t group_;
  const AttentionTiles tiles_;
  const AttentionCapacity capacity_;
  AttentionPlanHeader& header_;
  AttentionItem *few_, *many_;
  MergeItem* merges_;
  int32_t num_states_ = 0;
};

}  // namespace

AttentionCapacity AttentionCapacity::Of(int64_t tokens, int64_t group, int64_t kv_heads,
                                        const AttentionTiles& tiles) {
  const int64_t states = (tiles.states + kv_heads - 1) / kv_heads;
  // The last tile of each request may have fewer rows.
  const int64_t few = tokens * group / kWarpRows + tokens;
  return {.few = few + states,
          // The last tile of each, too, but their requests have more rows than a tile.
          .many = 2 * tokens * group / tiles.many_rows,
          .merges = std::min(few, states),
          .states = states};
}

int64_t AttentionCapacity::Bytes() const {
  return static_cast<int64_t>(sizeof(AttentionPlanHeader)) +
         (few + many) * static_cast<int64_t>(sizeof(AttentionItem)) +
         merges * static_cast<int64_t>(sizeof(MergeItem));
}

AttentionPlanView ViewOf(const std::byte* plan, const AttentionCapacity& capacity) {
  const auto* const header = reinterpret_cast<const AttentionPlanHeader*>(plan);
  const auto* const few = reinterpret_cast<const AttentionItem*>(header + 1);
  const AttentionItem* const many = few + capacity.few;
  return {.data = header,
          .few = few,
          .many = many,
          .merges = reinterpret_cast<const MergeItem*>(many + capacity.many)};
}

int64_t AttentionStateBytes(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles) {
  const int64_t states = AttentionCapacity::Of(1, 1, args.kv_heads, tiles).states * args.kv_heads;
  return states * kWarpRows * (args.q.shape[2] + 2) * static_cast<int64_t>(sizeof(float));
}

int64_t AttentionPlanBytes(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles) {
  return CapacityOf(args, tiles).Bytes();
}

void MakeAttentionPlan(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles,
                       std::span<std::byte> plan) {
  Planner(args, tiles, plan).Make();
}

int64_t PagedAttentionStateBytes(const ops::OpCall& call, int32_t) {
  return AttentionStateBytes(ops::ToPagedAttentionArgs(call), kHeadTiles);
}

int64_t PagedAttentionPlanBytes(const ops::OpCall& call) {
  return AttentionPlanBytes(ops::ToPagedAttentionArgs(call), kHeadTiles);
}

void MakePagedAttentionPlan(const ops::OpCall& call, std::span<std::byte> plan) {
  MakeAttentionPlan(ops::ToPagedAttentionArgs(call), kHeadTiles, plan);
}

}  // namespace pagemill::gpu
