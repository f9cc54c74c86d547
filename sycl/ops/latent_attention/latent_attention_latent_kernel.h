#ifndef PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_LATENT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/latent_attention/latent_attention_params.h"
#include "sycl/ops/latent_write/f8_rows.h"
#include "sycl/ops/step_tokens.h"

// The rows of the cache that a query sees, for one of its heads: numbered by position or, if they
// are chosen, in the order of the choice.
struct LatentKeys {
  const LatentAttentionParams& p;
  const Act *q, *rope;
  const int32_t* pages;   // of the request
  const int32_t* chosen;  // or null

  const char* RowOf(int32_t key) const {
    const int32_t row = chosen == nullptr ? key : chosen[key];
    return p.cache.Row<const char>(pages[row / p.rows_of_page]) +
           row % p.rows_of_page * p.row_bytes;
  }
  float Element(const char* row, int32_t d) const { return LoadLatent(p.type, p.f8_row, row, d); }

  float Score(int32_t key) const {
    const char* const row = RowOf(key);
    float sum = 0;
    for (int32_t d = 0; d < p.latent_size; ++d) {
      sum = sycl::fma(Load(q + d), Element(row, d), sum);
    }
    for (int32_t d = 0; d < p.rope_size; ++d) {
      sum = sycl::fma(Load(rope + d), Element(row, p.latent_size + d), sum);
    }
    return sum * p.scale;
  }
  float Value(int32_t key, int32_t d) const { return Element(RowOf(key), d); }
};

// [low, high)
struct LatentRange {
  int32_t low, high;
};

// Chosen keys are those before the first -1.
inline int32_t CountChosen(const int32_t* chosen, int32_t choices) {
  int32_t low = 0, high = choices;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (chosen[middle] < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

inline LatentRange RangeOf(const LatentAttentionParams& p, const LatentKeys& keys,
                            int32_t request, int32_t token) {
  if (keys.chosen != nullptr) return {0, CountChosen(keys.chosen, p.choices)};
  const int32_t position = p.batch.seq_lens[request] - p.batch.query_start[request + 1] + token;
  const int32_t end = (position + 1) / p.tokens_of_row;
  return {p.window > 0 ? sycl::max(0, end - p.window) : 0, end};
}

// A work-group for each head of each query. Each round scores a key a work-item; then each
// work-item adds the round's latents for its elements. Rounds begin at the first key, so that a
// query has the same bits however a prompt is divided into steps.
PAGEMILL_KERNEL void latent_attention_kernel(LatentAttentionParams p) {
  static sycl::ext::oneapi::experimental::work_group_static<float[kLatentGroupSize]> weights;
  constexpr int kElements = kMaxLatentWidth / kLatentGroupSize;  // of a work-item, at most
  const auto token = static_cast<int32_t>(GroupId() / p.heads);
  const auto head = static_cast<int32_t>(GroupId() % p.heads);
  if (token >= p.batch.query_start[p.batch.num_requests]) return;
  const int32_t request = RequestOfToken(p.batch, token), id = LocalId();
  const LatentKeys keys = {
      p, p.q.Row<const Act>(token) + int64_t{head} * p.latent_size,
      p.rope.Row<const Act>(token) + int64_t{head} * p.rope_size,
      p.batch.block_table + request * p.batch.table_stride,
      p.chosen.data == nullptr ? nullptr : p.chosen.Row<const int32_t>(token)};
  const LatentRange range = RangeOf(p, keys, request, token);
  float largest = -kInfinity, sum = 0, y[kElements] = {};
  for (int32_t first = range.low; first < range.high; first += kLatentGroupSize) {
    const int32_t count = sycl::min(kLatentGroupSize, range.high - first);
    const float score = id < count ? keys.Score(first + id) : -kInfinity;
    const float before = largest;
    largest = sycl::fmax(
        before, sycl::reduce_over_group(Group(), score, sycl::maximum<float>()));
    const float weight = id < count ? sycl::exp(score - largest) : 0.0f;
    const float kept = sycl::exp(before - largest);
    sum = sum * kept + sycl::reduce_over_group(Group(), weight, sycl::plus<float>());
    weights[id] = weight;
    sycl::group_barrier(Group());
    for (int e = 0; e < kElements; ++e) y[e] *= kept;
    for (int32_t i = 0; i < count; ++i) {
      for (int e = 0; e < kElements; ++e) {
        const int32_t d = id + e * kLatentGroupSize;
        if (d >= p.latent_size) break;
        y[e] = sycl::fma(weights[i], keys.Value(first + i, d), y[e]);
      }
    }
    sycl::group_barrier(Group());  // before the next round's weights
  }
  const bool sees = range.low < range.high;
  for (int e = 0; e < kElements; ++e) {
    const int32_t d = id + e * kLatentGroupSize;
    if (d >= p.latent_size) break;
    Store(p.y.Row<Act>(token) + int64_t{head} * p.latent_size + d, sees ? y[e] / sum : 0.0f);
  }
  if (p.lse.data == nullptr || id != 0) return;
  p.lse.Row<float>(token)[head] = sees ? largest + sycl::log(sum) : -kInfinity;
}

#endif  // PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_LATENT_KERNEL_H_
