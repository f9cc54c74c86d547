#ifndef PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_STATE_KERNEL_H_

#include "sycl/ops/compress_tokens/compress_tokens_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/states/state_runs.h"

// The largest score of a part, and relative to it the sums of weights and of values. Without
// tokens the weights are 0.
struct PartSums {
  float largest = 0, weights = 0, values = 0;

  void Add(float score, float x) {
    const float next = weights == 0 ? score : sycl::fmax(largest, score);
    const float old = weights == 0 ? 0 : sycl::exp(largest - next);
    const float added = sycl::exp(score - next);
    largest = next;
    weights = sycl::fma(weights, old, added);
    values = sycl::fma(values, old, added * x);
  }
};

// A work-item for each channel of each request.
PAGEMILL_KERNEL void compress_tokens_kernel(CompressTokensParams p) {
  const int64_t request = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  if (request >= p.batch.num_requests) return;
  const int32_t last = p.parts - 1;  // the part whose sums give y
  const int32_t before_step = p.batch.seq_lens[request] - p.batch.query_start[request + 1];
  const auto state_of = [&](int32_t page, int32_t part) {
    return p.states.Row<float>(page) + part * 3 * p.channels + channel;
  };
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    PartSums sums[kMaxCompressedParts];
    for (int32_t part = 0; part < p.parts && run.source != kNullPage; ++part) {
      const float* source = state_of(run.source, part);
      sums[part] = {source[0], source[p.channels], source[2 * p.channels]};
    }
    for (int32_t t = run.begin; t < run.end; ++t) {
      const int32_t in_window = (before_step + t) % p.window;
      if (in_window == 0) {
        if (p.parts > 1) sums[last] = sums[0];
        sums[0] = PartSums();
      }
      for (int32_t part = 0; part < p.parts; ++part) {
        const int64_t i = part * p.channels + channel;
        const float gate = Load(p.gate.Row<const Act>(t) + i);
        sums[part].Add(gate + p.bias.Row<const float>(in_window)[i],
                       Load(p.x.Row<const Act>(t) + i));
      }
      const bool closes = in_window == p.window - 1;
      Store(p.y.Row<Act>(t) + channel, closes ? sums[last].values / sums[last].weights : 0.0f);
    }
    for (int32_t part = 0; part < p.parts && run.target != kNullPage; ++part) {
      float* target = state_of(run.target, part);
      target[0] = sums[part].largest;
      target[p.channels] = sums[part].weights;
      target[2 * p.channels] = sums[part].values;
    }
  });
}

#endif  // PAGEMILL_SYCL_OPS_COMPRESS_TOKENS_COMPRESS_TOKENS_STATE_KERNEL_H_
