// File: cc/ops/row_maxima.h
// The largest logit of each row of a product, without the logits: all that a greedy request needs.
//
//   std::vector<RowMaximum> maxima(rows);
//   RunRowMaxima(*row, call, context, /*columns=*/vocab_size, maxima.data());
//   if (maxima[0].usable()) Use(maxima[0].column);
//
// A row's maximum may be found in pieces, by Observe(), and from pieces of pieces, by Merge(), in
// any order and by any number of threads: the largest logit and the lowest column that has it (0
// and -0 are equal). It is what ArgMax() of sample/sample.h says of the row of logits.
#ifndef PAGEMILL_CC_OPS_ROW_MAXIMA_H_
#define PAGEMILL_CC_OPS_ROW_MAXIMA_H_

#include <cstdint>
#include <limits>

#include "cc/ops/op.h"

namespace pagemill::ops {

struct RowMaximum {
  // +inf where some logit is NaN or +inf, -inf where all are (or there is none): column is -1 then.
  float logit = -std::numeric_limits<float>::infinity();
  int32_t column = -1;

  bool usable() const { return column >= 0; }
};

// x[0, n) are columns first_column, first_column + 1, ... of the row.
void Observe(const float* x, int64_t n, int64_t first_column, RowMaximum* maximum);

// The same for several rows, `stride` floats apart, and the maximum of each.
void ObserveRows(const float* x, int64_t stride, int64_t rows, int64_t n, int64_t first_column,
                 RowMaximum* maxima);

// `other` is of the same row.
void Merge(const RowMaximum& other, RowMaximum* maximum);

// maxima[i] becomes that of the first `columns` columns of row i of the call's one output, which
// is then undefined. 0 <= columns <= its columns. `kernel` is of a `linear`; kernels
// without run_row_maxima write logits, which are read again.
void RunRowMaxima(const Kernel& kernel, const OpCall& call, KernelContext& context, int64_t columns,
                  RowMaximum* maxima);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROW_MAXIMA_H_
