// File: cc/sim/histogram.h
// Counts of non-negative integers (here: nanoseconds) in a fixed number of buckets whose width
// grows with the value: bounded memory for any input, and percentiles within 0.8 % of the exact
// ones (values below 64 are exact). The layout is that of HdrHistogram (Gil Tene).
//
//   Histogram ttft;
//   ttft.Add(1500000);
//   ttft.Quantile(990);  // 99th percentile, in thousandths
//
// 30 KB each. Thread safety: none.
#ifndef PAGEMILL_CC_SIM_HISTOGRAM_H_
#define PAGEMILL_CC_SIM_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagemill::sim {

class Histogram {
 public:
  Histogram();

  void Add(int64_t value, uint64_t count = 1);  // value >= 0

  uint64_t count() const { return count_; }
  int64_t min() const { return count_ == 0 ? 0 : min_; }  // exact
  int64_t max() const { return max_; }                    // exact
  int64_t mean() const;                                   // exact, rounded down; 0 if empty
  // The `permille`-thousandths quantile: the middle of its bucket, within [min, max]. 0 if empty.
  int64_t Quantile(int permille) const;

  struct Bucket {
    int64_t low;   // smallest value of the bucket
    int64_t high;  // smallest value of the next one
    uint64_t count;
  };
  std::vector<Bucket> NonEmpty() const;  // ascending

 private:
  static size_t BucketOf(int64_t value);
  static int64_t LowOf(size_t bucket);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  uint64_t sum_low_ = 0, sum_high_ = 0;  // a 128-bit sum
  int64_t min_ = INT64_MAX;
  int64_t max_ = 0;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_HISTOGRAM_H_
