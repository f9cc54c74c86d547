#ifndef PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_LATENT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/select_tokens/best_keys.h"
#include "sycl/ops/select_tokens/select_tokens_params.h"
#include "sycl/ops/step_tokens.h"

inline float IndexScore(const SelectTokensParams& p, int64_t token, const int32_t* pages,
                        int32_t row) {
  const void* page = p.cache.Row<const char>(pages[row / p.rows_of_page]);
  const int64_t first = row % p.rows_of_page * int64_t{p.index_size + p.rope_size};
  const Act* q = p.q.Row<const Act>(token);
  const Act* rope = p.rope.Row<const Act>(token);
  const float* weights = p.weights.Row<const float>(token);
  float score = 0;
  for (int32_t head = 0; head < p.heads; ++head) {
    float sum = 0;
    for (int32_t d = 0; d < p.index_size; ++d, ++q) {
      sum = sycl::fma(Load(q), LoadAs(p.type, page, first + d), sum);
    }
    for (int32_t d = 0; d < p.rope_size; ++d, ++rope) {
      sum = sycl::fma(Load(rope), LoadAs(p.type, page, first + p.index_size + d), sum);
    }
    score = sycl::fma(weights[head], sum < 0 ? 0.0f : sum, score);
  }
  return score;
}

// A work-group for each token.
PAGEMILL_KERNEL void select_tokens_kernel(SelectTokensParams p) {
  const int64_t token = p.first_token + GroupId();
  if (token >= p.batch.query_start[p.batch.num_requests]) return;
  const int32_t request = RequestOfToken(p.batch, static_cast<int32_t>(token));
  const int32_t* pages = p.batch.block_table + request * p.batch.table_stride;
  const auto position = static_cast<int32_t>(p.batch.seq_lens[request] -
                                             p.batch.query_start[request + 1] + token);
  const int32_t visible = (position + 1) / p.tokens_of_row;
  int32_t* positions = p.positions + GroupId() * p.capacity;
  BestKeys best(p.choices, p.capacity, p.keys + GroupId() * p.capacity, positions);
  for (int32_t first = 0; first < visible; first += kSelectGroupSize) {
    const int32_t row = first + LocalId();
    const bool exists = row < visible;
    best.Offer(exists ? OrderedKey(IndexScore(p, token, pages, row)) : 0, row, exists);
  }
  best.Finish();
  for (int32_t i = LocalId(); i < p.choices; i += kSelectGroupSize) {
    p.chosen.Row<int32_t>(token)[i] = i < best.count() ? positions[i] : -1;
  }
}

#endif  // PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_LATENT_KERNEL_H_
