// File: cc/ops/paged_attention/attention_kernel.h
// Interface of attention kernels for one instruction set: the softmax-weighted sum of values over a
// range of keys, for a tile of query rows that share a KV head. Plain data and functions only:
// files compiled for wide instructions include this header (docs/build.md).
//
// A request's rows are its (token, query head of the KV head's group) pairs, token-major: row r is
// token r / group, head r % group. Positions never decrease along the rows of a tile.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_KERNEL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_KERNEL_H_

#include <algorithm>
#include <cstdint>

#include "cc/ops/paged_attention/distance_biases.h"

namespace pagemill::ops {

// The partition of a context, in absolute key positions. Within a split the softmax continues chunk
// by chunk; splits are computed separately and merged in ascending order, so results do not depend
// on which thread computes a split.
inline constexpr int32_t kAttentionChunk = 64;
inline constexpr int32_t kAttentionSplit = 256;
inline constexpr int32_t kAttentionKeyGroup = 16;  // adjacent keys of a block
inline constexpr int32_t kAttentionTileRows = 48;

// The same for all tiles of a call.
struct AttentionShape {
  int32_t head_dim = 0;
  int32_t padded_dim = 0;  // head_dim rounded up to 32
  int32_t key_size = 0;    // elements of a key in the cache: head_dim; of int4, bytes
  int32_t value_size = 0;  // likewise of a value
  int32_t group = 0;       // query heads per KV head
  int32_t kv_heads = 0;
  int32_t block_size = 0;
  int32_t window = 0;
  bool chunked = false;
  bool causal = true;
  bool encoder_keys = false;  // only those before a tile's encoder_end
  bool decoder_keys = false;  // only those from there on, for queries from there on
  float query_scale = 1;  // queries, or scores, are multiplied by it, so that ...
  float soft_cap = 0;     // ... scores are in units of log2(e), or, if this is not 0, tanh(score) *
                          // soft_cap is
  int32_t grows_from = 0;  // above 0: capped scores of later positions are multiplied by ...
  float growth = 0;        // ... this times the natural logarithm of the position
  float value_scale = 1;  // by which what `attend` sums of the cache's values is multiplied
  const float* sinks = nullptr;   // of all query heads, or null: logits, in nats
  const float* slopes = nullptr;  // of all query heads, or null: nats per position
  DistanceBiases biases = {};     // of all query heads, in nats
  float bias_unit = 1;  // by which biases are multiplied, to have the unit of scores before the cap
  const void* cache = nullptr;
  int64_t block_stride_bytes = 0;
};

// Rows [first_row, first_row + rows) of one request.
struct AttentionTile {
  const float* q = nullptr;  // the request's first token, head 0 of the KV head's group
  float* y = nullptr;
  int64_t q_stride = 0;  // elements from token to token
  int64_t y_stride = 0;
  const int32_t* block_table = nullptr;
  int32_t kv_head = 0;
  int64_t first_query = 0;  // the request's first token, among all of the step
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;  // of the request's first token of the step
  int32_t seq_len = 0;
  int32_t encoder_end = 0;             // of the request, if the shape needs it
  const int32_t* item_ends = nullptr;  // from the request's first token on, or null
  // Likewise: the first key of each token and the end of its keys, which the shape then does not
  // say.
  const int32_t* key_ranges = nullptr;
};

// The first key that the query at `position` sees.
inline int32_t FirstKey(const AttentionShape& shape, const AttentionTile& tile, int32_t position) {
  if (tile.key_ranges != nullptr) return tile.key_ranges[2 * (position - tile.first_position)];
  if (shape.window == 0) {
    return shape.decoder_keys && position >= tile.encoder_end ? tile.encoder_end : 0;
  }
  return shape.chunked ? position - position % shape.window : position + 1 - shape.window;
}

// One more than the last key that the query at `position` sees.
inline int32_t EndOfKeys(const AttentionShape& shape, const AttentionTile& tile, int32_t position) {
  if (tile.key_ranges != nullptr) return tile.key_ranges[2 * (position - tile.first_position) + 1];
  if (shape.causal) {
    if (tile.item_ends != nullptr) {
      return std::max(position + 1, tile.item_ends[position - tile.first_position]);
    }
    const bool ends = shape.encoder_keys && tile.encoder_end <= position;
    return ends ? tile.encoder_end : position + 1;
  }
  const bool ends = shape.window > 0 && shape.window < tile.seq_len - position;
  return ends ? position + shape.window : tile.seq_len;
}

// Softmax state: acc = sum 2^(score - max) v, sum = sum 2^(score - max), spread over 16 lanes by
// key.
struct AttentionState {
  float* acc = nullptr;  // [rows, padded_dim]
  float* sum = nullptr;  // [rows, 16]
  float* max = nullptr;  // [rows]; -infinity: the row has seen no key
};

// A kernel may process whole splits instead of chunks, for a few rows at a time; scratch then also
// holds their weights in 16 bits, and keys and values in the kernel's own order.
inline constexpr int32_t kAttentionScoreFloats =
    std::max(kAttentionTileRows * kAttentionChunk, 32 * kAttentionSplit);

// 16 keys and their values in the cache.
struct AttentionGroup {
  int32_t block = 0;
  int32_t offset = 0;  // in the block, of the first key
  int32_t kv_head = 0;
};

// Tiles of at most this many rows are bound by memory and prefetch; larger ones are bound by
// arithmetic.
inline constexpr int32_t kAttentionPrefetchRows = 12;
inline constexpr int32_t kAttentionSplitGroups = kAttentionSplit / kAttentionKeyGroup;

// The groups that a kernel prefetches while it computes a split: at most as many as the split has.
struct AttentionPrefetch {
  int32_t count = 0;
  AttentionGroup groups[kAttentionSplitGroups];
};

struct AttentionScratch {
  float* q = nullptr;           // [kAttentionTileRows, padded_dim]
  float* scores = nullptr;      // [kAttentionTileRows, kAttentionChunk] or [32, kAttentionSplit]
  uint16_t* weights = nullptr;  // [kAttentionTileRows, kAttentionSplit]
  uint16_t* pages = nullptr;    // [2, kAttentionSplit, padded_dim]: keys and values
  const AttentionPrefetch* prefetch = nullptr;  // null: nothing
};

struct AttentionKernel {
  // Copies the tile's queries to scratch.q, in the form that `attend` reads.
  void (*load_queries)(const AttentionShape& shape, const AttentionTile& tile,
                       const AttentionScratch& scratch);
  // Sets `state` to the softmax over the keys of split [begin, begin + kAttentionSplit) that each
  // row sees. `begin` is a multiple of kAttentionSplit.
  void (*attend)(const AttentionShape& shape, const AttentionTile& tile,
                 const AttentionScratch& scratch, int32_t begin, const AttentionState& state);
  // Adds `next`, the state of the split after those in `total`.
  void (*merge)(const AttentionShape& shape, int32_t rows, const AttentionState& total,
                const AttentionState& next);
  // Divides by the sums, the sinks' share included, and stores the tile's rows of y.
  void (*finish)(const AttentionShape& shape, const AttentionTile& tile,
                 const AttentionState& state);
  bool prefetches = false;  // `attend` uses scratch.prefetch
};

// One kernel per cache type; functions are null for types that an instruction set does not support.
struct AttentionKernels {
  AttentionKernel f32, bf16, f8, int8, int4, k8v4;
};

extern const AttentionKernels kAttentionPortable;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionAvx512Bf16;
extern const AttentionKernels kAttentionAvx512Vnni;
extern const AttentionKernels kAttentionAmx;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_KERNEL_H_
