#ifndef PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_LATENT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/merge_attention/merge_attention_params.h"

// A work-item for each element of the result. A set without keys has lse -infinity, as one that is
// missing, and its x is not read.
PAGEMILL_KERNEL void merge_attention_kernel(MergeAttentionParams p) {
  const int64_t width = p.heads * p.size;
  const int64_t row = GlobalId() / width, i = GlobalId() % width, head = i / p.size;
  if (row >= p.rows) return;
  const float sink = p.sinks == nullptr ? -kInfinity : p.sinks[head];
  float lse[kMaxAttentionSets], largest = sink;
  bool empty = sink == -kInfinity;
  for (int set = 0; set < kMaxAttentionSets; ++set) {
    const bool exists = p.x[set].data != nullptr;
    lse[set] = exists ? p.lse[set].Row<const float>(row)[head] : -kInfinity;
    largest = sycl::fmax(largest, lse[set]);
    empty = empty && lse[set] == -kInfinity;
  }
  float weights[kMaxAttentionSets], sum = empty ? 1 : sycl::exp(sink - largest);
  for (int set = 0; set < kMaxAttentionSets; ++set) {
    weights[set] = empty ? 0 : sycl::exp(lse[set] - largest);
    sum += weights[set];
  }
  float value = 0;
  for (int set = 0; set < kMaxAttentionSets; ++set) {
    if (weights[set] == 0) continue;
    value = sycl::fma(weights[set] / sum, Load(p.x[set].Row<const Act>(row) + i), value);
  }
  Store(p.y.Row<Act>(row) + i, value);
}

#endif  // PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_LATENT_KERNEL_H_
