// File: cuda/ops/paged_attention/attention_scores.h
// Which keys a query sees, and what becomes of the dot product of both (the contract is
// cc/ops/paged_attention/paged_attention.h), for every kernel of the op.
//
//   const AttentionParams p = ParamsOf(args);
//   const KeyRange keys = VisibleKeys(p, {.token = t, .position = position, .seq_len = seq_len});
//   const float score = Score(p, dot, head, Growth(p, position), key - position);
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_SCORES_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_SCORES_H_

#include <cstdint>

#include "cc/ops/kv_page.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// What the scores of a call have in common.
struct AttentionParams {
  int64_t block_size;
  int64_t head_dim, q_heads, kv_heads;
  ops::KeyStrides key;
  int64_t scales_offset;  // bytes from the beginning of a block; of an int8 cache
  const float* sinks;     // null: none, as below
  const float* slopes;
  const float* biases;
  int64_t bias_reach;
  float scale, v_scale;
  SoftCap cap;
  int64_t window;  // 0: none
  int32_t grows_from;  // 0: scores do not grow with the position
  bool chunked, causal;
  bool encoder_keys;            // only those of the encoder, else only those of the decoder, if ...
  const int32_t* encoder_ends;  // ... this, of the step's tokens, is not null
  const int32_t* item_ends;     // of the step's tokens, or null
};

inline AttentionParams ParamsOf(const ops::PagedAttentionArgs& args) {
  const int64_t head_dim = args.q.shape[2];
  return {
      .block_size = args.batch->block_size,
      .head_dim = head_dim,
      .q_heads = args.q.shape[1],
      .kv_heads = args.kv_heads,
      .key = ops::KeyStridesOf(args.keys_in_rows, head_dim, args.batch->block_size),
      .scales_offset = ops::KvScalesOffsetBytes(args.cache.dtype, {args.kv_heads, head_dim},
                                                args.batch->block_size),
      .sinks = args.sinks,
      .slopes = args.slopes,
      .biases = args.biases.rows.data,
      .bias_reach = args.biases.rows.reach,
      .scale = args.scale * args.kv_scales.k,
      .v_scale = args.kv_scales.v,
      .cap = SoftCapOf(args.soft_cap),
      .window = args.window,
      .grows_from = args.grows_from,
      .chunked = args.chunked,
      .causal = args.causal,
      .encoder_keys = args.encoder_keys,
      .encoder_ends = args.encoder_keys || args.decoder_keys ? args.batch->encoder_ends : nullptr,
      .item_ends = args.item_ends ? args.batch->item_ends : nullptr};
}

struct KeyRange {
  int64_t low, high;
};

// A query: its token's number in the step, its position, and the length of its request.
struct QueryPlace {
  int64_t token, position, seq_len;
};

// The keys of a query, for plans and kernels. Neither end is before that of an earlier query.
constexpr KeyRange VisibleKeys(const AttentionParams& p, const QueryPlace& query) {
  const int64_t position = query.position, seq_len = query.seq_len;
  KeyRange keys = {0, p.causal ? position + 1 : seq_len};
  if (p.item_ends != nullptr && p.item_ends[query.token] > keys.high) {
    keys.high = p.item_ends[query.token];
  }
  if (p.encoder_ends != nullptr) {
    const int64_t end = p.encoder_ends[query.token];
    if (p.encoder_keys && end < keys.high) keys.high = end;
    if (!p.encoder_keys && position >= end) keys.low = end;
  }
  if (p.window == 0) return keys;
  if (!p.causal && position + p.window < seq_len) keys.high = position + p.window;
  if (p.chunked) {
    keys.low = position / p.window * p.window;
  } else if (position + 1 > p.window) {
    keys.low = position + 1 - p.window;
  }
  return keys;
}

// What scores of a query are multiplied with because of its position.
PAGEMILL_DEVICE float Growth(const AttentionParams& p, int64_t position) {
  if (p.grows_from == 0 || position <= p.grows_from) return 1;
  return logf(static_cast<float>(position)) / logf(static_cast<float>(p.grows_from));
}

// The bias of the distance from a query to a key.
PAGEMILL_DEVICE float BiasOf(const AttentionParams& p, int64_t head, int64_t distance) {
  const int64_t reach = p.bias_reach;
  const int64_t within = distance < -reach ? -reach : distance > reach ? reach : distance;
  return p.biases[head * (2 * reach + 1) + reach + within];
}

// `dot` includes the scale of the key's row. The same bits in every kernel that inlines it: no
// product is left to the compiler to fuse.
PAGEMILL_DEVICE float Score(const AttentionParams& p, float dot, int64_t head, float growth,
                            int64_t distance) {
  const float bias = p.biases == nullptr ? 0 : BiasOf(p, head, distance);
  const float slope =
      p.slopes == nullptr ? 0 : RoundedProduct(p.slopes[head], static_cast<float>(distance));
  float score = RoundedProduct(dot, p.scale) + bias;
  if (p.cap.most > 0) score = p.cap.Of(score);
  return fmaf(growth, score, slope);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTENTION_SCORES_H_
