#ifndef PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/paged_attention/paged_attention_params.h"
#include "sycl/ops/request.h"

// [low, high)
struct KeyRange {
  int32_t low, high;
};

// The keys that a query at `position` sees.
struct VisibleKeys {
  int32_t position;
  KeyRange range;
};

inline VisibleKeys VisibleTo(const PagedAttentionParams& p, int32_t request, int32_t token) {
  const int32_t length = p.seq_lens[request];
  const int32_t position = length - p.query_start[request + 1] + token;
  KeyRange keys{0, length};
  if (p.causal) {
    keys.high = position + 1;
  } else if (p.window > 0) {
    keys.high = sycl::min(static_cast<int64_t>(length), int64_t{position} + p.window);
  }
  if (p.chunked) {
    keys.low = position / p.window * p.window;
  } else if (p.window > 0) {
    keys.low = sycl::max(0, position + 1 - p.window);
  }
  if (p.encoder_ends != nullptr) {
    const int32_t end = p.encoder_ends[token];
    if (p.encoder_keys) {
      keys.high = sycl::min(keys.high, end);
    } else if (position >= end) {
      keys.low = end;
    }
  }
  if (p.item_ends != nullptr) keys.high = sycl::max(keys.high, p.item_ends[token]);
  return {position, keys};
}

// The scale of a row of an int8 block: rows of K by head and token, then those of V.
inline float RowScale(const PagedAttentionParams& p, const char* block, int64_t row) {
  if (p.type != ElementType::kI8) return 1;
  const char* at = block + 2 * int64_t{p.kv_heads} * p.head_dim * p.block_size + 4 * row;
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= uint32_t{static_cast<uint8_t>(at[i])} << 8 * i;
  return sycl::bit_cast<float>(bits);
}

// Before the first key.
struct Softmax {
  float largest = -kInfinity, sum = 0;
};

// Calls store(d, y[d]) for the sum y of the values of the keys of a range, each times its softmax
// weight. Each round scores a key a work-item; then each work-item adds the round's values for its
// elements of the head. Rounds begin at the first visible key, so that a query has the same bits
// however a prompt is divided into steps. `weights` is memory of the group, of its size.
template <typename Keys, typename StoreElement>
inline void Attend(const Keys& keys, KeyRange range, int32_t head_dim, Softmax softmax,
                   float* weights, const StoreElement& store) {
  constexpr int kElements = kMaxAttentionHeadDim / kAttentionGroupSize;  // of a work-item, at most
  const int32_t id = LocalId();
  float y[kElements] = {};
  sycl::group_barrier(Group());  // what `keys` reads is written
  for (int32_t first = range.low; first < range.high; first += kAttentionGroupSize) {
    const int32_t count = sycl::min(kAttentionGroupSize, range.high - first);
    const float score = id < count ? keys.Score(first + id) : -kInfinity;
    const float round = sycl::reduce_over_group(Group(), score, sycl::maximum<float>());
    const float before = softmax.largest;
    softmax.largest = sycl::fmax(before, round);
    const float weight = id < count ? sycl::exp(score - softmax.largest) : 0.0f;
    const float kept = sycl::exp(before - softmax.largest);
    softmax.sum =
        softmax.sum * kept + sycl::reduce_over_group(Group(), weight, sycl::plus<float>());
    weights[id] = weight;
    sycl::group_barrier(Group());
    for (int e = 0; e < kElements; ++e) y[e] *= kept;
    for (int32_t i = 0; i < count; ++i) {
      const float factor = weights[i] * keys.ValueScale(first + i);
      for (int e = 0; e < kElements; ++e) {
        const int32_t d = id + e * kAttentionGroupSize;
        if (d >= head_dim) break;
        y[e] = sycl::fma(factor, keys.Value(first + i, d), y[e]);
      }
    }
    sycl::group_barrier(Group());  // before the next round's weights
  }
  for (int e = 0; e < kElements; ++e) {
    const int32_t d = id + e * kAttentionGroupSize;
    if (d >= head_dim) break;
    store(d, y[e] / softmax.sum);
  }
}

// The keys of a head in the pages of a request.
struct PagedKeys {
  const PagedAttentionParams& p;
  const float* q;  // the head's elements times the scale of scores
  int32_t head, kv_head;
  const int32_t* blocks;  // of the request
  int32_t position;       // of the query

  const char* Block(int32_t key) const {
    return p.cache.Row<const char>(blocks[key / p.block_size]);
  }
  // Where the key's row of V is, in rows of the block.
  int64_t ValueRow(int32_t key) const {
    return int64_t{p.kv_heads + kv_head} * p.block_size + key % p.block_size;
  }

  float Score(int32_t key) const {
    const char* block = Block(key);
    const int64_t offset = key % p.block_size;
    const int64_t first = int64_t{kv_head} * p.head_dim * p.block_size + offset;
    float score = 0;
    for (int32_t d = 0; d < p.head_dim; ++d) {
      score = sycl::fma(q[d], LoadAs(p.type, block, first + int64_t{d} * p.block_size), score);
    }
    score *= RowScale(p, block, int64_t{kv_head} * p.block_size + offset);
    const int32_t distance = key - position;
    if (p.biases != nullptr) {
      const int32_t reach = p.bias_reach;
      score += p.biases[head * (2 * reach + 1) + reach + sycl::clamp(distance, -reach, reach)];
    }
    if (p.soft_cap > 0) score = p.soft_cap * sycl::tanh(score / p.soft_cap);
    if (p.grows_from > 0 && position > p.grows_from) {
      score *=
          sycl::log(static_cast<float>(position)) / sycl::log(static_cast<float>(p.grows_from));
    }
    if (p.slopes != nullptr) score += p.slopes[head] * static_cast<float>(distance);
    return score;
  }
  float ValueScale(int32_t key) const { return RowScale(p, Block(key), ValueRow(key)); }
  float Value(int32_t key, int32_t d) const {
    return LoadAs(p.type, Block(key), ValueRow(key) * p.head_dim + d);
  }
};

// A work-group for each head of each query.
PAGEMILL_KERNEL void paged_attention_kernel(PagedAttentionParams p) {
  static sycl::ext::oneapi::experimental::work_group_static<float[kMaxAttentionHeadDim]> q_memory;
  static sycl::ext::oneapi::experimental::work_group_static<float[kAttentionGroupSize]> memory;
  float* q = &q_memory[0];
  const int32_t token = static_cast<int32_t>(GroupId() / p.q_heads);
  const int32_t head = static_cast<int32_t>(GroupId() % p.q_heads);
  const int32_t request = RequestOf(p.query_start, p.requests, token);
  const VisibleKeys visible = VisibleTo(p, request, token);
  const int64_t first = int64_t{head} * p.head_dim;
  for (int32_t d = LocalId(); d < p.head_dim; d += kAttentionGroupSize) {
    q[d] = Load(p.q.Row<const Act>(token) + first + d) * p.scale;
  }
  const PagedKeys keys = {p,
                          q,
                          head,
                          head / (p.q_heads / p.kv_heads),
                          p.block_table + request * p.table_stride,
                          visible.position};
  const Softmax softmax =
      p.sinks == nullptr ? Softmax{} : Softmax{.largest = p.sinks[head], .sum = 1};
  Act* y = p.y.Row<Act>(token) + first;
  Attend(keys, visible.range, p.head_dim, softmax, &memory[0],
         [&](int32_t d, float value) { Store(y + d, value * p.v_scale); });
}

#endif  // PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_
