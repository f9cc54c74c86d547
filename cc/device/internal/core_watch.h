// File: cc/device/internal/core_watch.h
// Feeds Attendance from the clock and from the kernel's count of the time that threads waited for
// cores. Used by the pool's caller, and only after a wait took long: on a machine without other
// processes a loop never executes this code.
#ifndef PAGEMILL_CC_DEVICE_INTERNAL_CORE_WATCH_H_
#define PAGEMILL_CC_DEVICE_INTERNAL_CORE_WATCH_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cc/device/attendance.h"
#include "cc/device/run_delay.h"

namespace pagemill::device::internal {

class CoreWatch {
 public:
  // The time that thread `i` has waited for a core so far, in ns; see RunDelay. Thread-safe.
  using Source = std::function<std::optional<int64_t>(int32_t thread)>;

  // Null: uses the kernel's count.
  CoreWatch(int32_t num_threads, Source source);

  // Called once by thread `thread` itself before it works; optional for thread 0.
  void SetThreadId(int32_t thread, pid_t id) { ids_[thread] = id; }

  // The threads that take part, ascending from thread 0. Valid until the next call of a function
  // below.
  std::span<const int32_t> attending() const { return attending_; }
  bool all_attend() const { return attendance_.num_absent() == 0; }

  // The caller had to wait `waited_ns` for the others: checks whether one of them waits for its
  // core.
  void CallerWaited(int64_t waited_ns);
  // The others had to wait: checks whether the caller waited for its core.
  void OthersWaited();
  // Called before each loop while some threads are absent. Calls begin_probe(thread) for those that
  // must call Probe().
  void Advance(const std::function<void(int32_t thread)>& begin_probe);
  // Called by thread `thread` itself: run() spins to find out whether it has a core to itself. The
  // wait until it first got a core does not count, because another thread may have had the core
  // only while this one was absent.
  template <typename Run>
  void Probe(int32_t thread, const Run& run) {
    const int64_t before_ns = Total(thread).value_or(0);
    run();
    probed_ns_[thread].store(Total(thread).value_or(0) - before_ns, std::memory_order_release);
  }

 private:
  // The growth of its wait since the last call; 0 if unknown.
  int64_t Growth(int32_t thread);
  std::optional<int64_t> Total(int32_t thread);
  void CountAttending();

  Attendance attendance_;
  const Source source_;
  std::vector<int32_t> attending_;
  std::vector<std::atomic<pid_t>> ids_;
  std::vector<std::atomic<int64_t>> probed_ns_;  // wait during the last probe; negative: probing
  std::vector<std::optional<RunDelay>> delays_;  // opened on first use
  std::vector<int64_t> seen_ns_;
};

}  // namespace pagemill::device::internal

#endif  // PAGEMILL_CC_DEVICE_INTERNAL_CORE_WATCH_H_
