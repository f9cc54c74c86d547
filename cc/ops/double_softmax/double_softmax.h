// File: cc/ops/double_softmax/double_softmax.h
// Sums of values that the softmax of scores weighs, for references of attention.
//
//   DoubleSoftmax<kMaxHeadDim> softmax(head_dim);
//   for (int64_t key = begin; key < end; ++key) softmax.Add(Score(key), values.Row<float>(key));
//   y[i] = static_cast<float>(softmax.Mean(i));
#ifndef PAGEMILL_CC_OPS_DOUBLE_SOFTMAX_DOUBLE_SOFTMAX_H_
#define PAGEMILL_CC_OPS_DOUBLE_SOFTMAX_DOUBLE_SOFTMAX_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace pagemill::ops {

// In double, one key after the other. Sums are scaled again when a larger score comes, so that no
// score is stored.
template <int64_t kMaxSize>
class DoubleSoftmax {
 public:
  static constexpr double kNoSink = -std::numeric_limits<double>::infinity();

  // Of values with `size` elements, at most kMaxSize. `sink`: a score that has a weight, no value.
  explicit DoubleSoftmax(int64_t size, double sink = kNoSink)
      : size_(size), most_(sink), weights_(sink == kNoSink ? 0 : 1) {}

  // A key whose value has the elements value[i] * scale for i in [0, size).
  template <typename Value>
  void Add(double score, const Value& value, double scale = 1) {
    if (score > most_) {
      const double kept = std::exp(std::exchange(most_, score) - score);
      weights_ *= kept;
      for (int64_t i = 0; i < size_; ++i) sums_[i] *= kept;
    }
    const double weight = std::exp(score - most_);
    weights_ += weight;
    const double scaled = weight * scale;
    for (int64_t i = 0; i < size_; ++i) sums_[i] += scaled * value[i];
  }

  // NaN without keys.
  double Mean(int64_t i) const { return sums_[i] / weights_; }

  // The logarithm of the sum of exp(score) over keys and sink.
  double LogSumExp() const { return most_ + std::log(weights_); }

 private:
  const int64_t size_;
  double most_;
  double weights_;
  double sums_[kMaxSize] = {};
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DOUBLE_SOFTMAX_DOUBLE_SOFTMAX_H_
