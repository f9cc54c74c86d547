#ifndef PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_TOKEN_KERNEL_H_

#include "cc/ops/sample/token_scores.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/score_tokens/score_tokens_params.h"

// Exponentials are whole numbers, this one's units, so that their sum has no order.
inline constexpr float kExponentialUnits = 0x1p40f;

// The best of the work-item's columns, by logit and then the lowest, that comes behind `last`;
// column `width` if there is none.
inline int32_t NextColumn(const float* x, int32_t width, int32_t last) {
  int32_t next = width;
  for (int32_t v = LocalId(); v < width; v += GroupSize()) {
    if (sycl::isnan(x[v])) continue;
    const bool behind = last == width || x[v] < x[last] || (x[v] == x[last] && v > last);
    if (behind && (next == width || x[v] > x[next])) next = v;
  }
  return next;
}

// The best column of the group's.
inline int32_t BestColumn(const float* x, int32_t width, int32_t own) {
  const float value = own < width ? x[own] : -kInfinity;
  const float most = sycl::reduce_over_group(Group(), value, sycl::maximum<float>());
  return sycl::reduce_over_group(Group(), value == most ? own : width, sycl::minimum<int32_t>());
}

// A work-group for each wanted row.
PAGEMILL_KERNEL void score_tokens_kernel(ScoreTokensParams p) {
  using pagemill::ops::ScoredRow;
  using pagemill::ops::TokenScores;
  const ScoredRow& of = *p.scored.Row<const ScoredRow>(GroupId());
  TokenScores& to = *p.y.Row<TokenScores>(GroupId());
  const float* const x =
      of.copy < 0 ? p.x.Row<const float>(of.row) : p.copies.Row<const float>(of.copy);
  const int32_t token = of.token_id < 0 ? p.columns[of.row] : of.token_id;
  const float logit = token < 0 ? -kInfinity : x[token];
  int32_t own = NextColumn(x, p.width, p.width);
  const int32_t best = BestColumn(x, p.width, own);
  const float largest = best < p.width ? x[best] : -kInfinity;
  uint64_t units = 0;
  int32_t above = 0;
  for (int32_t v = LocalId(); v < p.width; v += GroupSize()) {
    const float exponential = sycl::exp(x[v] - largest);
    if (exponential > 0) units += static_cast<uint64_t>(exponential * kExponentialUnits);
    above += x[v] > logit ? 1 : 0;
  }
  units = sycl::reduce_over_group(Group(), units, sycl::plus<uint64_t>());
  above = sycl::reduce_over_group(Group(), above, sycl::plus<int32_t>());
  const float log_of_sum = sycl::log(static_cast<float>(units) / kExponentialUnits);
  if (LocalId() == 0) {
    to.logprob = (logit - largest) - log_of_sum;
    to.rank = above + 1;
  }
  const int32_t num_top = sycl::min(of.num_top, p.width);
  for (int32_t n = 0; n < num_top; ++n) {
    const int32_t found = BestColumn(x, p.width, own);
    if (found == p.width) return;  // the others are NaN
    if (LocalId() == 0) {
      to.top_ids[n] = found;
      to.top_logprobs[n] = (x[found] - largest) - log_of_sum;
    }
    if (found == own) own = NextColumn(x, p.width, found);
  }
}

#endif  // PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_TOKEN_KERNEL_H_
