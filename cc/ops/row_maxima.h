// File: cc/ops/row_maxima.h
// The largest logit of each row of a product, computed without storing logits, for greedy requests.
//
//   std::vector<RowMaximum> maxima(rows);
//   RunRowMaxima(*kernel, call, context, /*columns=*/vocab_size, maxima.data());
//   if (maxima[0].usable()) Use(maxima[0].column);
//
// A row's maximum may be computed piece by piece with Observe(), and pieces combined with Merge(),
// in any order and by any number of threads: the largest logit and the lowest column that has it (0
// and -0 are equal). It equals ArgMax() of sample/sample.h over the row of logits.
#ifndef PAGEMILL_CC_OPS_ROW_MAXIMA_H_
#define PAGEMILL_CC_OPS_ROW_MAXIMA_H_

#include <cstdint>
#include <limits>

#include "cc/ops/op.h"

namespace pagemill::ops {

struct RowMaximum {
  // +inf if some logit is NaN or +inf, -inf if all are -inf (or there are none); column is then -1.
  float logit = -std::numeric_limits<float>::infinity();
  int32_t column = -1;

  bool usable() const { return column >= 0; }
};

// Observes x[0, n): columns first_column, first_column + 1, ... of the row.
void Observe(const float* x, int64_t n, int64_t first_column, RowMaximum* maximum);

// The same for several rows, `stride` floats apart, each with its own maximum.
void ObserveRows(const float* x, int64_t stride, int64_t rows, int64_t n, int64_t first_column,
                 RowMaximum* maxima);

// `other` is of the same row.
void Merge(const RowMaximum& other, RowMaximum* maximum);

// Sets maxima[i] to the maximum of the first `columns` columns of row i of the call's only output,
// whose contents are then undefined. 0 <= columns <= its columns. `kernel` is a kernel of `linear`;
// those without run_row_maxima write logits, which are read again.
void RunRowMaxima(const Kernel& kernel, const OpCall& call, KernelContext& context, int64_t columns,
                  RowMaximum* maxima);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROW_MAXIMA_H_
