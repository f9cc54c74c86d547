// File: cc/ops/stream_weights/weights_of_row.h
// One row of `stream_weights`, in f32 or in double.
#ifndef PAGEMILL_CC_OPS_STREAM_WEIGHTS_WEIGHTS_OF_ROW_H_
#define PAGEMILL_CC_OPS_STREAM_WEIGHTS_WEIGHTS_OF_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cc/ops/op.h"
#include "cc/ops/stream_weights/stream_weights.h"

namespace pagemill::ops::stream_weights {

// The operands of a row; `after` is null if it is not wanted.
struct Row {
  const float* mixes;
  const float* base;
  const float* scale;
  float* before;
  float* after;
  int64_t streams;
  int64_t iterations;
  double eps;
};

inline Row RowOf(const OpCall& call, int64_t row) {
  const bool has_after = call.outputs.size() > 1;
  return {.mixes = call.inputs[0].Row<const float>(row),
          .base = call.inputs[1].Data<const float>(),
          .scale = call.inputs[2].Data<const float>(),
          .before = call.outputs[0].Row<float>(row),
          .after = has_after ? call.outputs[1].Row<float>(row) : nullptr,
          .streams = call.outputs[0].shape[1],
          .iterations = call.attributes->GetInt("iterations", 1),
          .eps = call.attributes->Get("eps", 0)};
}

template <typename Real>
class WeightsOfRow {
 public:
  explicit WeightsOfRow(const Row& row) : row_(row), n_(row.streams), eps_(Real(row.eps)) {}

  void Run() {
    for (int64_t i = 0; i < n_; ++i) {
      row_.before[i] = static_cast<float>(Sigmoid(Mixed(0, i)) + eps_);
    }
    if (row_.after == nullptr) return;
    MakePairs();
    DivideColumns();
    for (int64_t i = 1; i < row_.iterations; ++i) {
      DivideRows();
      DivideColumns();
    }
    for (int64_t k = 0; k < n_; ++k) {
      float* const after = row_.after + k * (n_ + 1);
      for (int64_t j = 0; j < n_; ++j) after[j] = static_cast<float>(pairs_[j * n_ + k]);
      after[n_] = static_cast<float>(2 * Sigmoid(Mixed(1, n_ + k)));
    }
  }

 private:
  static Real Sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
  Real Mixed(int64_t kind, int64_t i) const {
    return Real(row_.mixes[i]) * Real(row_.scale[kind]) + Real(row_.base[i]);
  }

  void MakePairs() {
    for (int64_t j = 0; j < n_; ++j) {
      Real* const pairs = pairs_ + j * n_;
      for (int64_t k = 0; k < n_; ++k) pairs[k] = Mixed(2, 2 * n_ + j * n_ + k);
      const Real largest = *std::max_element(pairs, pairs + n_);
      Real sum = 0;
      for (int64_t k = 0; k < n_; ++k) sum += pairs[k] = std::exp(pairs[k] - largest);
      for (int64_t k = 0; k < n_; ++k) pairs[k] = pairs[k] / sum + eps_;
    }
  }
  void DivideRows() {
    for (int64_t j = 0; j < n_; ++j) Divide(pairs_ + j * n_, 1);
  }
  void DivideColumns() {
    for (int64_t k = 0; k < n_; ++k) Divide(pairs_ + k, n_);
  }
  void Divide(Real* at, int64_t stride) {
    Real sum = eps_;
    for (int64_t i = 0; i < n_; ++i) sum += at[i * stride];
    for (int64_t i = 0; i < n_; ++i) at[i * stride] /= sum;
  }

  const Row row_;
  const int64_t n_;
  const Real eps_;
  Real pairs_[kMaxStreams * kMaxStreams];
};

}  // namespace pagemill::ops::stream_weights

#endif  // PAGEMILL_CC_OPS_STREAM_WEIGHTS_WEIGHTS_OF_ROW_H_
