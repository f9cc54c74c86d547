#ifndef PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_

#include "sycl/ops/attention/attention_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/paged_attention/paged_attention_act_kernel.h"  // Attend()
#include "sycl/ops/request.h"

// The keys of a head in the step's own tokens, for Attend().
struct StepKeys {
  const AttentionParams& p;
  const float* q;
  int32_t token, head, kv_head;

  float Score(int32_t key) const {
    const Act* k = p.k.Row<const Act>(key) + int64_t{kv_head} * p.head_dim;
    float score = 0;
    for (int32_t d = 0; d < p.head_dim; ++d) score = sycl::fma(q[d], Load(k + d), score);
    if (p.biases == nullptr) return score;
    const int32_t reach = p.bias_reach, distance = sycl::clamp(key - token, -reach, reach);
    return score + p.biases[head * (2 * reach + 1) + reach + distance];
  }
  float ValueScale(int32_t) const { return 1; }
  float Value(int32_t key, int32_t d) const {
    return Load(p.v.Row<const Act>(key) + int64_t{kv_head} * p.head_dim + d);
  }
};

// A work-group for each head of each token. Tokens behind the last request's stay as they are.
PAGEMILL_KERNEL void attention_kernel(AttentionParams p) {
  static sycl::ext::oneapi::experimental::work_group_static<float[kMaxAttentionHeadDim]> q_memory;
  static sycl::ext::oneapi::experimental::work_group_static<float[kAttentionGroupSize]> memory;
  float* q = &q_memory[0];
  const auto token = static_cast<int32_t>(GroupId() / p.q_heads);
  const auto head = static_cast<int32_t>(GroupId() % p.q_heads);
  if (token >= p.query_start[p.requests]) return;
  const int32_t request = RequestOf(p.query_start, p.requests, token);
  KeyRange keys{p.query_start[request], p.query_start[request + 1]};
  if (p.window > 0) {
    keys.low = sycl::max(keys.low, token + 1 - p.window);
    keys.high = static_cast<int32_t>(sycl::min(int64_t{keys.high}, int64_t{token} + p.window));
  }
  if (p.causal) keys.high = token + 1;
  if (p.windows != nullptr) {
    const int32_t start = p.query_start[request];
    keys = {start + p.windows[2 * token], start + p.windows[2 * token + 1]};
  }
  const int64_t first = int64_t{head} * p.head_dim;
  for (int32_t d = LocalId(); d < p.head_dim; d += kAttentionGroupSize) {
    q[d] = Load(p.q.Row<const Act>(token) + first + d) * p.scale;
  }
  Act* y = p.y.Row<Act>(token) + first;
  Attend(StepKeys{p, q, token, head, head / (p.q_heads / p.kv_heads)}, keys, p.head_dim, Softmax{},
         &memory[0], [&](int32_t d, float value) { Store(y + d, value); });
}

#endif  // PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_
