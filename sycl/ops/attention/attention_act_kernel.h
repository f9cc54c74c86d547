#ifndef PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_

#include "sycl/ops/attention/attention_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/paged_attention/paged_attention_act_kernel.h"  // Attend()
#include "sycl/ops/request.h"

// The bias of a head of a row of the step.
inline float BiasAt(const AttentionBiases& biases, int64_t row, int32_t head, int32_t distance) {
  const int32_t reach = biases.reach, within = sycl::clamp(distance, -reach, reach);
  return biases.data[row * biases.row_stride + int64_t{head} * (2 * reach + 1) + reach + within];
}

// The keys of a head in the step's own rows, for Attend(). `start` is the request's first one.
struct StepKeys {
  const AttentionParams& p;
  const float* q;
  int32_t start, row, head, kv_head;

  float Score(int32_t key) const {
    const Act* k = p.k.Row<const Act>(key) + int64_t{kv_head} * p.head_dim;
    float score = 0;
    for (int32_t d = 0; d < p.head_dim; ++d) score = sycl::fma(q[d], Load(k + d), score);
    score = Biased(score, key);
    return p.soft_cap > 0 ? p.soft_cap * sycl::tanh(score / p.soft_cap) : score;
  }
  float Biased(float score, int32_t key) const {
    if (p.key_biases.data != nullptr) score += BiasAt(p.key_biases, key, head, key - row);
    if (p.biases.data == nullptr) return score;
    if (p.grid_columns == 0) return score + BiasAt(p.biases, row, head, key - row);
    const int32_t of_key = key - start, of_query = row - start, width = p.grid_columns;
    return score + BiasAt(p.biases, row, head, of_key / width - of_query / width) +
           BiasAt(p.column_biases, row, head, of_key % width - of_query % width);
  }
  float ValueScale(int32_t) const { return 1; }
  float Value(int32_t key, int32_t d) const {
    return Load(p.v.Row<const Act>(key) + int64_t{kv_head} * p.head_dim + d);
  }
};

// A work-group for each head of each row. Rows behind the last request's stay as they are.
PAGEMILL_KERNEL void attention_kernel(AttentionParams p) {
  static sycl::ext::oneapi::experimental::work_group_static<float[kMaxAttentionHeadDim]> q_memory;
  static sycl::ext::oneapi::experimental::work_group_static<float[kAttentionGroupSize]> memory;
  float* q = &q_memory[0];
  const auto row = static_cast<int32_t>(GroupId() / p.q_heads);
  const auto head = static_cast<int32_t>(GroupId() % p.q_heads);
  const int32_t token = row / p.rows_of_token;
  if (token >= p.query_start[p.requests]) return;
  const int32_t request = RequestOf(p.query_start, p.requests, token);
  const int32_t start = p.query_start[request] * p.rows_of_token;
  KeyRange keys{start, p.query_start[request + 1] * p.rows_of_token};
  if (p.window > 0) {
    keys.low = sycl::max(keys.low, row + 1 - p.window);
    keys.high = static_cast<int32_t>(sycl::min(int64_t{keys.high}, int64_t{row} + p.window));
  }
  if (p.causal) keys.high = row + 1;
  if (p.listed != nullptr) keys = {start + p.listed[2 * row], start + p.listed[2 * row + 1]};
  const int64_t first = int64_t{head} * p.head_dim;
  for (int32_t d = LocalId(); d < p.head_dim; d += kAttentionGroupSize) {
    q[d] = Load(p.q.Row<const Act>(row) + first + d) * p.scale;
  }
  const Softmax softmax =
      p.sinks == nullptr ? Softmax{} : Softmax{.largest = p.sinks[head], .sum = 1};
  Act* y = p.y.Row<Act>(row) + first;
  Attend(StepKeys{p, q, start, row, head, head / (p.q_heads / p.kv_heads)}, keys, p.head_dim,
         softmax, &memory[0], [&](int32_t d, float value) { Store(y + d, value); });
}

#endif  // PAGEMILL_SYCL_OPS_ATTENTION_ATTENTION_ACT_KERNEL_H_
