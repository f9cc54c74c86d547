// File: cc/ops/paged_attention/attention_workspace.h
// Layout of the workspace of attention_driver: states of tiles, then scratch and a prefetcher for
// each thread.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_WORKSPACE_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_WORKSPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/attention_prefetch.h"
#include "cc/ops/paged_attention/attention_tile_list.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {

// Sizes of a call.
struct AttentionSizes {
  // Batches of more tokens do not compute a common prefix together; bounds the workspace.
  static constexpr int64_t kMaxSharingTokens = 256;

  int64_t padded_dim = 0;  // head_dim rounded up to 32
  int64_t num_threads = 0;
  int64_t tokens = 0;
  int64_t group = 0;
  int64_t kv_heads = 0;

  static AttentionSizes Of(const PagedAttentionArgs& args, int32_t num_threads) {
    return {.padded_dim = (args.q.shape[2] + 31) / 32 * 32,
            .num_threads = num_threads,
            .tokens = args.q.shape[0],
            .group = args.q.shape[1] / args.kv_heads,
            .kv_heads = args.kv_heads};
  }

  // Number of tiles of the rows of all tokens, which compute the common prefix together.
  int64_t SharedTiles() const {
    const int64_t rows = std::min(tokens, kMaxSharingTokens) * group;
    return (rows + kAttentionTileRows - 1) / kAttentionTileRows * kv_heads;
  }
  // Floats of a state of `rows` rows.
  int64_t StateFloats(int64_t rows) const {
    return (rows * (padded_dim + kAttentionKeyGroup + 1) + 15) / 16 * 16;
  }
  int64_t ScratchFloats() const {
    return kAttentionTileRows * (padded_dim + kAttentionSplit / 2) + kAttentionScoreFloats +
           kAttentionSplit * padded_dim;
  }
};

class AttentionWorkspace {
 public:
  AttentionWorkspace(std::byte* base, const AttentionSizes& sizes)
      : base_(reinterpret_cast<float*>(base)), sizes_(sizes) {}

  static int64_t Bytes(const AttentionSizes& sizes) {
    const int64_t floats = StatesFloats(sizes) +
                           sizes.SharedTiles() * sizes.StateFloats(kAttentionTileRows) +
                           sizes.num_threads * sizes.ScratchFloats();
    return floats * static_cast<int64_t>(sizeof(float)) + sizes.num_threads * kPrefetcherBytes;
  }

  // States of at most `rows` rows each, from the beginning: NumStates(rows) of them.
  AttentionState State(int64_t index, int64_t rows = kAttentionTileRows) const {
    return StateAt(base_ + index * sizes_.StateFloats(rows), rows);
  }
  int64_t NumStates(int64_t rows) const { return StatesFloats(sizes_) / sizes_.StateFloats(rows); }
  // State of a tile of rows that share a prefix.
  AttentionState SharedState(int64_t tile) const {
    return StateAt(base_ + StatesFloats(sizes_) + tile * sizes_.StateFloats(kAttentionTileRows),
                   kAttentionTileRows);
  }
  AttentionScratch Scratch(int64_t worker) const {
    float* q = SharedState(sizes_.SharedTiles()).acc + worker * sizes_.ScratchFloats();
    float* scores = q + kAttentionTileRows * sizes_.padded_dim;
    float* weights = scores + kAttentionScoreFloats;
    return {
        .q = q,
        .scores = scores,
        .weights = reinterpret_cast<uint16_t*>(weights),
        .pages = reinterpret_cast<uint16_t*>(weights + kAttentionTileRows * kAttentionSplit / 2)};
  }
  // The caller constructs the object.
  AttentionPrefetcher* Prefetcher(int64_t worker) const {
    return reinterpret_cast<AttentionPrefetcher*>(AfterScratch() + worker * kPrefetcherBytes);
  }

 private:
  // Threads do not share cache lines.
  static constexpr int64_t kPrefetcherBytes = (sizeof(AttentionPrefetcher) + 63) / 64 * 64;

  // Two states for each thread; or the states of a wave of splits, and of their tiles.
  static int64_t StatesFloats(const AttentionSizes& sizes) {
    return sizes.num_threads * 12 * sizes.StateFloats(kAttentionTileRows);
  }
  AttentionState StateAt(float* acc, int64_t rows) const {
    float* sum = acc + rows * sizes_.padded_dim;
    return {.acc = acc, .sum = sum, .max = sum + rows * kAttentionKeyGroup};
  }
  std::byte* AfterScratch() const {
    return reinterpret_cast<std::byte*>(Scratch(sizes_.num_threads).q);
  }

  float* const base_;
  const AttentionSizes sizes_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_WORKSPACE_H_
