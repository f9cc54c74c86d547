#ifndef PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/paged_attention/paged_attention_params.h"

// The last request whose first token is not after `token`, among those with tokens.
inline int32_t RequestOf(const PagedAttentionParams& p, int32_t token) {
  int32_t low = 0, high = p.requests;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (p.query_start[middle] <= token ? low : high) = middle;
  }
  return low;
}

// The keys that a query sees: [low, high).
struct VisibleKeys {
  int32_t position, low, high;
};

inline VisibleKeys VisibleTo(const PagedAttentionParams& p, int32_t request, int32_t token) {
  const int32_t length = p.seq_lens[request];
  const int32_t position = length - p.query_start[request + 1] + token;
  VisibleKeys keys{position, 0, length};
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
  return keys;
}

// The scale of a row of an int8 block: rows of K by head and token, then those of V.
inline float RowScale(const PagedAttentionParams& p, const char* block, int64_t row) {
  if (p.type != ElementType::kI8) return 1;
  const char* at = block + 2 * int64_t{p.kv_heads} * p.head_dim * p.block_size + 4 * row;
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= uint32_t{static_cast<uint8_t>(at[i])} << 8 * i;
  return sycl::bit_cast<float>(bits);
}

struct AttentionHead {
  int32_t head, kv_head;
  const int32_t* blocks;  // of the request
};

// `q` has the head's elements times the scale of scores.
inline float ScoreOf(const PagedAttentionParams& p, const AttentionHead& at, const float* q,
                     int32_t key, int32_t position) {
  const char* block = p.cache.Row<const char>(at.blocks[key / p.block_size]);
  const int64_t offset = key % p.block_size;
  const int64_t first = int64_t{at.kv_head} * p.head_dim * p.block_size + offset;
  float score = 0;
  for (int32_t d = 0; d < p.head_dim; ++d) {
    score = sycl::fma(q[d], LoadAs(p.type, block, first + int64_t{d} * p.block_size), score);
  }
  score *= RowScale(p, block, int64_t{at.kv_head} * p.block_size + offset);
  if (p.soft_cap > 0) score = p.soft_cap * sycl::tanh(score / p.soft_cap);
  if (p.grows_from > 0 && position > p.grows_from) {
    score *= sycl::log(static_cast<float>(position)) / sycl::log(static_cast<float>(p.grows_from));
  }
  const int32_t distance = key - position;
  if (p.slopes != nullptr) score += p.slopes[at.head] * static_cast<float>(distance);
  if (p.biases != nullptr) {
    const int32_t reach = p.bias_reach;
    score += p.biases[at.head * (2 * reach + 1) + reach + sycl::clamp(distance, -reach, reach)];
  }
  return score;
}

// A work-group for each head of each query. Each round scores a key a work-item; then each
// work-item adds the round's values for its elements of the head. Rounds begin at the first visible
// key, so that a query has the same bits however a prompt is divided into steps.
PAGEMILL_KERNEL void paged_attention_kernel(PagedAttentionParams p) {
  static sycl::ext::oneapi::experimental::work_group_static<float[kMaxAttentionHeadDim]> q_memory;
  static sycl::ext::oneapi::experimental::work_group_static<float[kAttentionGroupSize]> memory;
  float* q = &q_memory[0];
  float* weights = &memory[0];
  constexpr int kElements = kMaxAttentionHeadDim / kAttentionGroupSize;  // of a work-item, at most
  const int32_t token = static_cast<int32_t>(GroupId() / p.q_heads);
  const int32_t request = RequestOf(p, token), id = LocalId();
  AttentionHead at;
  at.head = static_cast<int32_t>(GroupId() % p.q_heads);
  at.kv_head = at.head / (p.q_heads / p.kv_heads);
  at.blocks = p.block_table + request * p.table_stride;
  const VisibleKeys keys = VisibleTo(p, request, token);
  for (int32_t d = id; d < p.head_dim; d += kAttentionGroupSize) {
    q[d] = Load(p.q.Row<const Act>(token) + at.head * p.head_dim + d) * p.scale;
  }
  float largest = p.sinks == nullptr ? -kInfinity : p.sinks[at.head];
  float sum = p.sinks == nullptr ? 0.0f : 1.0f;
  float y[kElements] = {};
  sycl::group_barrier(Group());
  for (int32_t first = keys.low; first < keys.high; first += kAttentionGroupSize) {
    const int32_t count = sycl::min(kAttentionGroupSize, keys.high - first);
    const float score =
        id < count ? ScoreOf(p, at, q, first + id, keys.position) : -kInfinity;
    const float round = sycl::reduce_over_group(Group(), score, sycl::maximum<float>());
    const float before = largest;
    largest = sycl::fmax(largest, round);
    const float weight = id < count ? sycl::exp(score - largest) : 0.0f;
    const float kept = sycl::exp(before - largest);
    sum = sum * kept + sycl::reduce_over_group(Group(), weight, sycl::plus<float>());
    weights[id] = weight;
    sycl::group_barrier(Group());
    for (int e = 0; e < kElements; ++e) y[e] *= kept;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t key = first + i;
      const char* block = p.cache.Row<const char>(at.blocks[key / p.block_size]);
      const int64_t row =
          int64_t{p.kv_heads + at.kv_head} * p.block_size + key % p.block_size;
      const float factor = weights[i] * RowScale(p, block, row);
      for (int e = 0; e < kElements; ++e) {
        const int32_t d = id + e * kAttentionGroupSize;
        if (d >= p.head_dim) break;
        y[e] = sycl::fma(factor, LoadAs(p.type, block, row * p.head_dim + d), y[e]);
      }
    }
    sycl::group_barrier(Group());  // before the next round's weights
  }
  for (int e = 0; e < kElements; ++e) {
    const int32_t d = id + e * kAttentionGroupSize;
    if (d >= p.head_dim) break;
    Store(p.y.Row<Act>(token) + at.head * p.head_dim + d, y[e] / sum * p.v_scale);
  }
}

#endif  // PAGEMILL_SYCL_OPS_PAGED_ATTENTION_PAGED_ATTENTION_ACT_KERNEL_H_
