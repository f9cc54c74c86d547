// File: cuda/ops/paged_attention/attention_plan.h
// Divides a batch among blocks, those of attention_items.h and of latents
// (cuda/ops/latent_attention/tensor_cores.h): tiles of rows (heads of queries that read the same KV
// head) of one request, and ranges of splits of kSplitKeys keys.
//
// A row's result is that of its splits, merged in their order (split_state.h). So the division
// changes no bits, and is free to follow the whole batch: requests of many
// rows have tiles of many rows, each of which walks all its keys; tiles of requests of few rows are
// divided into splits if their context is long and there is memory for the states.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_PLAN_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/ops/op.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::gpu {

inline constexpr int kSplitKeys = 512;
inline constexpr int kWarpRows = 16;  // of a tile, for each of its warps

// Requests of more rows have tiles of this many, of several warps; others tiles of one warp.
inline constexpr int kFewRows = 64;

// How an op divides requests, and the memory that it has for it.
struct AttentionTiles {
  int32_t few_rows;   // of a request with tiles of kWarpRows rows, which may be divided, at most
  int32_t many_rows;  // of the tiles of other requests
  // States of splits in the workspace, over all KV heads: of one KV head, tile of kWarpRows rows
  // and split each. A state takes kWarpRows * (head_dim + 2) floats.
  int64_t states;
};
inline constexpr AttentionTiles kHeadTiles = {kFewRows, kFewRows, 4096};  // of paged_attention

// Rows from `first_row` on of a request, and its splits [first_split, end_split).
struct AttentionItem {
  int32_t request, first_row;
  int32_t first_split, end_split;
  int32_t state;  // of the split, in the workspace; -1: the result is stored in y
};

// The states of a tile, merged into y.
struct MergeItem {
  int32_t request, first_row;
  int32_t first_state, num_states;
};

// What a call of these shapes may need.
struct AttentionCapacity {
  int64_t few, many;  // items of tiles of one warp, and of several
  int64_t merges;
  int64_t states;  // for each KV head

  static AttentionCapacity Of(int64_t tokens, int64_t group, int64_t kv_heads,
                              const AttentionTiles& tiles);
  int64_t Bytes() const;
};

// In a plan, followed by `few` and `many` items and the merges, each as many as its capacity.
struct AttentionPlanHeader {
  int32_t num_few, num_many, num_merges;
  int32_t unused;
};

// Where the parts of a plan are. Of device memory on a device.
struct AttentionPlanView {
  const AttentionPlanHeader* data;
  const AttentionItem* few;
  const AttentionItem* many;
  const MergeItem* merges;
};
AttentionPlanView ViewOf(const std::byte* plan, const AttentionCapacity& capacity);

// What states take of the workspace.
int64_t AttentionStateBytes(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles);

int64_t AttentionPlanBytes(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles);
void MakeAttentionPlan(const ops::PagedAttentionArgs& args, const AttentionTiles& tiles,
                       std::span<std::byte> plan);

// Those of calls of paged_attention.
int64_t PagedAttentionStateBytes(const ops::OpCall& call, int32_t num_threads);
int64_t PagedAttentionPlanBytes(const ops::OpCall& call);
void MakePagedAttentionPlan(const ops::OpCall& call, std::span<std::byte> plan);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_PLAN_H_
