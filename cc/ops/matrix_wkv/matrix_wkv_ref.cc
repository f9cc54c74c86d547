// The reference of `matrix_wkv`: one head after the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cc/ops/matrix_wkv/matrix_wkv.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One head over the tokens of a request.
class Head {
 public:
  Head(const MatrixWkvArgs& args, int64_t head)
      : args_(args),
        first_(head * args.keys),
        first_value_(head * args.values),
        state_(static_cast<size_t>(args.keys * args.values)) {}

  void Run(const StateRun& run) {
    const int64_t in_page = first_ * args_.values;
    std::fill(state_.begin(), state_.end(), 0.0);
    if (run.source != kNullPage) {
      std::copy_n(args_.state.Row<float>(run.source) + in_page, state_.size(), state_.begin());
    }
    for (int64_t t = run.begin; t < run.end; ++t) Advance(t);
    float* const target = args_.state.Row<float>(run.target) + in_page;
    for (size_t i = 0; i < state_.size(); ++i) target[i] = static_cast<float>(state_[i]);
  }

 private:
  double At(const TensorView& rows, int64_t t, int64_t i) const {
    return rows.Row<float>(t)[first_ + i];
  }
  double At(const TensorView& vector, int64_t i) const { return vector.Data<float>()[first_ + i]; }
  double Value(int64_t t, int64_t j) const { return args_.value.Row<float>(t)[first_value_ + j]; }
  double& State(int64_t i, int64_t j) { return state_[static_cast<size_t>(i * args_.values + j)]; }

  double Norm(int64_t t) const {
    double squares = 0;
    for (int64_t i = 0; i < args_.keys; ++i) {
      squares += std::pow(At(args_.removal, i) * At(args_.key, t, i), 2);
    }
    return std::sqrt(std::max<double>(squares, kWkvLeastSquares));
  }

  void Advance(int64_t t) {
    const bool removes = args_.removes();
    const double norm = removes ? Norm(t) : 1;
    const std::vector<double> zeros(static_cast<size_t>(args_.values));
    std::vector<double> predicted = zeros, before = zeros, after = zeros;  // S^T x and S^T r
    for (int64_t i = 0; removes && i < args_.keys; ++i) {
      const double x = At(args_.removal, i) * At(args_.key, t, i) / norm;
      for (int64_t j = 0; j < args_.values; ++j) {
        predicted[static_cast<size_t>(j)] += x * State(i, j);
      }
    }
    double own = 0;
    for (int64_t i = 0; i < args_.keys; ++i) {
      const double w = args_.decay_is_shared() ? At(args_.decay, i) : At(args_.decay, t, i);
      const double r = At(args_.receptance, t, i);
      double key = At(args_.key, t, i), decay = std::exp(-std::exp(w)), share = 0;
      if (removes) {
        const double rate = Sigmoid(At(args_.rate, t, i));
        share = rate * At(args_.removal, i) * key / norm;
        key *= 1 + At(args_.boost, i) * (rate - 1);
        decay = std::exp(double{kWkvDecayScale} * Sigmoid(w));
      }
      own += r * At(args_.bonus, i) * key;
      for (int64_t j = 0; j < args_.values; ++j) {
        const size_t column = static_cast<size_t>(j);
        double& s = State(i, j);
        before[column] += r * s;
        s = decay * s - share * predicted[column] + key * Value(t, j);
        after[column] += r * s;
      }
    }
    for (int64_t j = 0; j < args_.values; ++j) {
      const size_t column = static_cast<size_t>(j);
      const double of_token = own * Value(t, j);
      const double y = removes ? after[column] : before[column] + of_token;
      args_.y.Row<float>(t)[first_value_ + j] = static_cast<float>(y);
      if (removes) args_.own.Row<float>(t)[first_value_ + j] = static_cast<float>(of_token);
    }
  }

  const MatrixWkvArgs& args_;
  const int64_t first_, first_value_;  // the head's elements of rows begin here
  std::vector<double> state_;          // [keys, values]
};

}  // namespace

void MatrixWkvReference(const OpCall& call, KernelContext&) {
  const MatrixWkvArgs args = ToMatrixWkvArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      Head head(args, h);
      ForEachStateRun(*args.batch, r, [&](const StateRun& run) { head.Run(run); });
    }
  }
}

}  // namespace pagemill::ops
