#ifndef PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_

#include "sycl/ops/causal_conv/causal_conv_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/paged_attention/paged_attention_act_kernel.h"  // RequestOf()

// Pages of a request's states (cc/ops/states/state_pages.h); 0: none.
struct StatePages {
  const int32_t *recent, *positions;
  int32_t num_recent, block_size;

  StatePages(const CausalConvParams& p, int64_t request)
      : recent(p.block_table + request * p.table_stride),
        positions(recent + p.recent_states),
        num_recent(p.recent_states),
        block_size(p.block_size) {}

  // That of the state after `tokens` > 0 tokens, where a step begins or ends.
  int32_t After(int32_t tokens) const {
    const int32_t page = positions[(tokens - 1) / block_size];
    const bool at_boundary = tokens % block_size == 0 && page != 0;
    return num_recent == 0 || at_boundary ? page : recent[tokens % num_recent];
  }
};

// The element of a channel in a row of the step, or in one before row `begin`, whose state is in
// page `source`.
inline float ConvElement(const CausalConvParams& p, int32_t source, int32_t begin, int32_t row,
                         int64_t channel) {
  if (row >= begin) return Load(p.x.Row<const Act>(row) + channel);
  if (source == 0) return 0;
  return p.states.Row<const float>(source)[(p.taps - 1 - (begin - row)) * p.channels + channel];
}

// A work-item for each channel of each token.
PAGEMILL_KERNEL void causal_conv_kernel(CausalConvParams p) {
  const auto row = static_cast<int32_t>(GlobalId() / p.channels);
  const int64_t channel = GlobalId() % p.channels;
  if (row >= p.rows || row >= p.query_start[p.requests]) return;
  const int32_t request = RequestOf(p.query_start, p.requests, row);
  const int32_t begin = p.query_start[request];
  const int32_t position = p.seq_lens[request] - (p.query_start[request + 1] - begin);
  const int32_t source = position > 0 ? StatePages(p, request).After(position) : 0;
  float sum = p.bias == nullptr ? 0.0f : p.bias[channel];
  for (int32_t j = 0; j < p.taps; ++j) {
    const float x = ConvElement(p, source, begin, row - (p.taps - 1) + j, channel);
    sum = sycl::fma(p.w[channel * p.taps + j], x, sum);
  }
  Store(p.y.Row<Act>(row) + channel, p.silu ? sum / (1 + sycl::exp(-sum)) : sum);
}

// A work-item for each channel of each request. Comes after all rows have read the states.
PAGEMILL_KERNEL void store_conv_states_kernel(CausalConvParams p) {
  const int64_t request = GlobalId() / p.channels, channel = GlobalId() % p.channels;
  if (request >= p.requests) return;
  const StatePages pages(p, request);
  const int32_t begin = p.query_start[request], end = p.query_start[request + 1];
  const int32_t before = p.seq_lens[request] - (end - begin);  // tokens before the step
  // The states of the step's last tokens are kept, before those the ones at boundaries.
  const int32_t first_kept = end - sycl::max(1, p.recent_states);
  int32_t source = before > 0 ? pages.After(before) : 0, from = begin;
  for (int32_t row = begin; row < end; ++row) {
    const int32_t tokens = before + row + 1 - begin;
    int32_t target = 0;
    if (row >= first_kept) {
      target = pages.After(tokens);
    } else if (tokens % p.block_size == 0) {
      target = pages.positions[tokens / p.block_size - 1];
    }
    if (target == 0) continue;
    // Ascending: rows move towards the oldest, and the target may be the source.
    for (int32_t k = 0; k < p.taps - 1; ++k) {
      p.states.Row<float>(target)[k * p.channels + channel] =
          ConvElement(p, source, from, row + 1 - (p.taps - 1) + k, channel);
    }
    source = target;
    from = row + 1;
  }
}

#endif  // PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_ACT_KERNEL_H_
