// File: cuda/ops/argmax/row_columns.h
// Walks columns of a row of logits, several loads at a time, for kernels with a block for a row.
//
//   ForColumns(row, /*begin=*/ThreadIndex().x, /*end=*/size, /*step=*/kThreads,
//              [&](int64_t column, float logit) { ... });
#ifndef PAGEMILL_CUDA_OPS_ARGMAX_ROW_COLUMNS_H_
#define PAGEMILL_CUDA_OPS_ARGMAX_ROW_COLUMNS_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Columns begin, begin + step, ... below `end`, in order.
template <typename Body>
PAGEMILL_DEVICE void ForColumns(const float* row, int64_t begin, int64_t end, int step,
                                const Body& body) {
  constexpr int kAhead = 8;  // loads under way
  int64_t i = begin;
  for (; i + (kAhead - 1) * step < end; i += kAhead * step) {
    float logits[kAhead];
    PAGEMILL_UNROLL
    for (int j = 0; j < kAhead; ++j) logits[j] = row[i + j * step];
    PAGEMILL_UNROLL
    for (int j = 0; j < kAhead; ++j) body(i + j * step, logits[j]);
  }
  for (; i < end; i += step) body(i, row[i]);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ARGMAX_ROW_COLUMNS_H_
