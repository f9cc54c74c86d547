// File: cc/ops/paged_attention/attention_workspace.h
// How attention_driver carves its workspace: states of tiles, then, for each thread, what it
// computes with and what it reads ahead.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_WORKSPACE_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_WORKSPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc/ops/paged_attention/attention_ahead.h"
#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/attention_tile_list.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {

// How large a call is.
struct AttentionSizes {
  // Batches of more tokens do not share a common prefix; it bounds the workspace.
  static constexpr int64_t kMostSharingTokens = 256;

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

  // Tiles of all tokens' rows, which compute the common prefix together.
  int64_t SharedTiles() const {
    const int64_t rows = std::min(tokens, kMostSharingTokens) * group;
    return (rows + kAttentionTileRows - 1) / kAttentionTileRows * kv_heads;
  }
  // Of a state of so many rows.
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
    return floats * static_cast<int64_t>(sizeof(float)) + sizes.num_threads * kAheadBytes;
  }

  // States of at most `rows` rows each, from the beginning: NumStates(rows) of them.
  AttentionState State(int64_t index, int64_t rows = kAttentionTileRows) const {
    return StateAt(base_ + index * sizes_.StateFloats(rows), rows);
  }
  int64_t NumStates(int64_t rows) const { return StatesFloats(sizes_) / sizes_.StateFloats(rows); }
  // Of a tile of the rows that share a prefix.
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
  // To be made by who uses it.
  AheadReader* Ahead(int64_t worker) const {
    return reinterpret_cast<AheadReader*>(AfterScratch() + worker * kAheadBytes);
  }

 private:
  // Threads do not share lines.
  static constexpr int64_t kAheadBytes = (sizeof(AheadReader) + 63) / 64 * 64;

  // Two states for each thread; or those of splits that threads share, and of their tiles.
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
