// File: cc/device/internal/core_watch.h
// Attendance with its eyes: the clock, and the kernel's count of how long threads waited for cores.
// All of it is for the pool's caller, and looked at only where something took long already: nothing
// of it is on the way of a loop on a machine without other processes.
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
  // How long thread `i` has waited for a core so far, in ns; see RunDelay. Thread-safe.
  using Source = std::function<std::optional<int64_t>(int32_t thread)>;

  // Null: what the kernel counts.
  CoreWatch(int32_t num_threads, Source source);

  // By thread `thread` itself, once, before it works. Thread 0 need not.
  void SetThreadId(int32_t thread, pid_t id) { ids_[thread] = id; }

  // Who takes part, in order; thread 0 comes first. Valid until the next call of the below.
  std::span<const int32_t> attending() const { return attending_; }
  bool all_attend() const { return attendance_.num_absent() == 0; }

  // The caller had to wait for the others for `waited_ns`: does one of them wait for its core?
  void CallerWaited(int64_t waited_ns);
  // The others had to wait: did the caller wait for its core?
  void OthersWaited();
  // While some are absent, before each loop. Calls begin_probe(thread) for those that shall call
  // Probe().
  void Advance(const std::function<void(int32_t thread)>& begin_probe);
  // By thread `thread` itself: run() is what it does to see whether it has a core to itself. Until
  // it got one for that does not count: the thread that had the core meanwhile may have had it
  // only because this one was away.
  template <typename Run>
  void Probe(int32_t thread, const Run& run) {
    const int64_t before_ns = Total(thread).value_or(0);
    run();
    probed_ns_[thread].store(Total(thread).value_or(0) - before_ns, std::memory_order_release);
  }

 private:
  // Since the last call; 0 if unknown.
  int64_t Growth(int32_t thread);
  std::optional<int64_t> Total(int32_t thread);
  void CountAttending();

  Attendance attendance_;
  const Source source_;
  std::vector<int32_t> attending_;
  std::vector<std::atomic<pid_t>> ids_;
  std::vector<std::atomic<int64_t>> probed_ns_;  // what the last probe waited; negative: probes
  std::vector<std::optional<RunDelay>> delays_;  // opened when first asked for
  std::vector<int64_t> seen_ns_;
};

}  // namespace pagemill::device::internal

#endif  // PAGEMILL_CC_DEVICE_INTERNAL_CORE_WATCH_H_
