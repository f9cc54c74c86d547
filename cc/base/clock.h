// File: cc/base/clock.h
// A clock as a dependency: code that measures time takes a `Clock*`, so that tests can set it.
//
//   SteadyClock clock;
//   int64_t start = clock.NowNanos();
//
// The scheduler and the cache take no clock at all. Thread safety: all clocks are thread-safe.
#ifndef PAGEMILL_CC_BASE_CLOCK_H_
#define PAGEMILL_CC_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace pagemill {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary moment; never decreases.
  virtual int64_t NowNanos() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  int64_t NowNanos() const override;
};

// Moves only with AdvanceNanos().
class FakeClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_nanos_.load(); }
  void AdvanceNanos(int64_t nanos) { now_nanos_.fetch_add(nanos); }

 private:
  std::atomic<int64_t> now_nanos_{0};
};

inline double SecondsBetween(int64_t from_nanos, int64_t to_nanos) {
  return static_cast<double>(to_nanos - from_nanos) * 1e-9;
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_CLOCK_H_
