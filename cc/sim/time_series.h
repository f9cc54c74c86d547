// File: cc/sim/time_series.h
// Statistics over virtual time, in at most kNumPoints equal intervals: when time passes the last
// one, pairs are merged and the intervals double. Memory is bounded for any duration.
//
//   TimeSeries series;
//   series.Advance(now, gauges);      // `gauges` held since the last call
//   series.At(now).num_finished += 1;
//
// Thread safety: none.
#ifndef PAGEMILL_CC_SIM_TIME_SERIES_H_
#define PAGEMILL_CC_SIM_TIME_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/sim/fixed_point.h"

namespace pagemill::sim {

// Over all engines, at one moment.
struct Gauges {
  int64_t num_waiting = 0;
  int64_t num_running = 0;
  int64_t kv_blocks_used = 0;
  int64_t engines_busy = 0;
};

class TimeSeries {
 public:
  static constexpr size_t kNumPoints = 256;

  struct Point {
    uint64_t num_arrived = 0;
    uint64_t num_finished = 0;
    uint64_t generated_tokens = 0;
    uint64_t prompt_tokens = 0;  // of requests with a first token
    uint64_t cached_tokens = 0;  // of prompt_tokens
    uint64_t preemptions = 0;
    // Integrals over the interval, in units of the gauge times nanoseconds.
    Uint128 waiting_ns = 0, running_ns = 0, kv_blocks_ns = 0, busy_ns = 0;
  };

  TimeSeries() : points_(1) {}

  // The interval that contains `time_ns`, which must not decrease between calls.
  Point& At(int64_t time_ns);
  void Advance(int64_t time_ns, const Gauges& gauges);

  int64_t width_ns() const { return width_ns_; }
  int64_t end_ns() const { return end_ns_; }  // time of the last Advance()
  const std::vector<Point>& points() const { return points_; }

 private:
  void Halve();

  int64_t width_ns_ = 1000000;
  int64_t end_ns_ = 0;
  std::vector<Point> points_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_TIME_SERIES_H_
