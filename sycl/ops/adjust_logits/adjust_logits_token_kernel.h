#ifndef PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_TOKEN_KERNEL_H_

#include "cc/ops/sample/row_adjustments.h"
#include "sycl/ops/adjust_logits/adjust_logits_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each bias.
PAGEMILL_KERNEL void add_biases_kernel(AdjustLogitsParams p) {
  const int64_t n = GlobalId();
  if (n >= p.num_biases) return;
  const int32_t* const words = p.biases.Row<const int32_t>(n);
  p.x.Row<float>(words[0])[words[1]] += sycl::bit_cast<float>(words[2]);
}

// A work-item for each logit of a row with penalties.
PAGEMILL_KERNEL void penalize_kernel(AdjustLogitsParams p) {
  const int64_t n = GlobalId() / p.width, v = GlobalId() % p.width;
  if (n >= p.num_penalties) return;
  const int32_t* const words = p.penalties.Row<const int32_t>(n);
  const auto real = [words](int i) { return sycl::bit_cast<float>(words[i]); };
  const pagemill::ops::RowPenalties of_row = {words[0], words[1], real(2),  real(3),
                                              real(4),  words[5], words[6]};
  const int32_t in_slot = p.counts.Row<const int32_t>(of_row.slot)[v];
  const int32_t counted =
      pagemill::ops::CountedForRow(in_slot, static_cast<int32_t>(v), p.ids, of_row);
  float& x = p.x.Row<float>(of_row.row)[v];
  if (counted != 0) x = pagemill::ops::PenalizedLogit(x, counted, of_row);
}

#endif  // PAGEMILL_SYCL_OPS_ADJUST_LOGITS_ADJUST_LOGITS_TOKEN_KERNEL_H_
