#ifndef PAGEMILL_SYCL_OPS_ROTARY_ROTARY_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ROTARY_ROTARY_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/rotary/rotary_params.h"

// A work-item for each pair of elements that is rotated, and for each element that is not.
PAGEMILL_KERNEL void rotary_kernel(RotaryParams p) {
  const int64_t items = p.head_dim - p.pairs;  // of a head
  const int64_t heads = p.q_heads + p.k_heads;
  const int64_t token = GlobalId() / (heads * items);
  if (token >= p.tokens) return;
  const int64_t i = GlobalId() % items;
  int64_t head = GlobalId() / items % heads;
  const bool is_q = head < p.q_heads;
  if (!is_q) head -= p.q_heads;
  const Act* x = (is_q ? p.q : p.k).Row<const Act>(token) + head * p.head_dim;
  Act* y = (is_q ? p.q_out : p.k_out).Row<Act>(token) + head * p.head_dim;
  if (i >= p.pairs) {
    const int64_t beside = i - p.pairs < p.begin ? i - p.pairs : i + p.pairs;
    y[beside] = x[beside];
    return;
  }
  float angle = 0;
  for (int64_t d = 0; d < p.dims; ++d) {
    angle += static_cast<float>(p.positions.Row<const int32_t>(token)[d] + p.offset) *
             p.frequencies.Row<const float>(d)[i];
  }
  const float c = sycl::cos(angle) * p.mscale, s = sycl::sin(angle) * p.mscale;
  const int64_t first = p.begin + (p.interleaved ? 2 * i : i);
  const int64_t second = first + (p.interleaved ? 1 : p.pairs);
  const float a = Load(x + first), b = Load(x + second);
  Store(y + first, a * c - b * s);
  Store(y + second, b * c + a * s);
}

#endif  // PAGEMILL_SYCL_OPS_ROTARY_ROTARY_ACT_KERNEL_H_
