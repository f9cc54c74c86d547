#include "cc/ops/row_maxima.h"

#include <algorithm>

namespace pagemill::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kPiece = 32;

// True if all elements are below `bound`, none equal, larger, or NaN. Compilers vectorize the loop.
bool AllBelow(const float* x, float bound) {
  int32_t below = -1;
  for (int64_t i = 0; i < kPiece; ++i) below &= x[i] < bound ? -1 : 0;
  return below != 0;
}

// Not inlined: rarely called.
[[gnu::noinline]] void ObserveEach(const float* x, int64_t n, int64_t first_column,
                                   RowMaximum* maximum) {
  for (int64_t i = 0; i < n; ++i) {
    const auto column = static_cast<int32_t>(first_column + i);
    if (!(x[i] < kInfinity)) {
      *maximum = {.logit = kInfinity, .column = -1};
    } else {
      Merge({.logit = x[i], .column = x[i] == -kInfinity ? -1 : column}, maximum);
    }
  }
}

}  // namespace

void Merge(const RowMaximum& other, RowMaximum* maximum) {
  if (other.logit < maximum->logit) return;
  if (other.logit > maximum->logit || other.column < maximum->column) *maximum = other;
}

void Observe(const float* x, int64_t n, int64_t first_column, RowMaximum* maximum) {
  ObserveRows(x, n, 1, n, first_column, maximum);
}

void ObserveRows(const float* x, int64_t stride, int64_t rows, int64_t n, int64_t first_column,
                 RowMaximum* maxima) {
  const int64_t whole = n / kPiece * kPiece;
  for (int64_t row = 0; row < rows; ++row, x += stride, ++maxima) {
    for (int64_t i = 0; i < whole; i += kPiece) {
      // The common case: nothing to update.
      if (AllBelow(x + i, maxima->logit)) continue;
      ObserveEach(x + i, kPiece, first_column + i, maxima);
    }
    if (whole < n) ObserveEach(x + whole, n - whole, first_column + whole, maxima);
  }
}

void RunRowMaxima(const Kernel& kernel, const OpCall& call, KernelContext& context, int64_t columns,
                  RowMaximum* maxima) {
  if (kernel.run_row_maxima != nullptr)
    return kernel.run_row_maxima(call, context, columns, maxima);
  kernel.run(call, context);
  const TensorView& y = call.outputs[0];
  context.pool->ParallelFor(y.shape[0], 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      maxima[n] = {};
      Observe(y.Row<const float>(n), columns, 0, &maxima[n]);
    }
  });
}

}  // namespace pagemill::ops
