// File: cc/base/duration_histogram.h
// How often durations were how long, as a statistic of Prometheus: counts of fixed buckets, and the
// sum. Bounded memory for any input.
//
//   DurationHistogram ages;  // has no buckets: nothing is measured
//   ages.Clear();
//   ages.Add(0.25);
//   ages.counts[DurationHistogram::BucketOf(0.25)];  // 1
//
// Thread safety: none.
#ifndef PAGEMILL_CC_BASE_DURATION_HISTOGRAM_H_
#define PAGEMILL_CC_BASE_DURATION_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/field_info.h"

namespace pagemill {

struct DurationHistogram {
  // Upper bounds of the buckets in seconds, each included: from a step to half an hour.
  static constexpr std::array<double, 21> kBoundsS = {
      0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,  1,   2,
      5,     10,    20,    30,   60,   120,  300, 600, 1200, 1800};

  std::vector<uint64_t> counts;  // of each bucket, and of what exceeds all bounds; or none
  double sum_s = 0;

  static size_t BucketOf(double seconds) {
    return static_cast<size_t>(std::lower_bound(kBoundsS.begin(), kBoundsS.end(), seconds) -
                               kBoundsS.begin());
  }
  // All buckets at 0.
  void Clear() {
    counts.assign(kBoundsS.size() + 1, 0);
    sum_s = 0;
  }
  // After a Clear().
  void Add(double seconds) {
    ++counts[BucketOf(seconds)];
    sum_s += seconds;
  }

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using H = DurationHistogram;
    visit("counts", &H::counts,
          Value("durations in each bucket, and above all of them; empty if nothing is measured"));
    visit("sum_s", &H::sum_s, Value("sum of the durations in seconds"));
  }
};

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_DURATION_HISTOGRAM_H_
