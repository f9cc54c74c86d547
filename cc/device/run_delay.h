// File: cc/device/run_delay.h
// The time that a runnable thread has waited for a core, as counted by the kernel: the cost of
// other processes on its core.
//
//   RunDelay delay(gettid());
//   std::optional<int64_t> ns = delay.TotalNs();   // since the thread began; ~0.5 us
//
// A wait counts once it is over. Thread-safe: any thread may query any thread of its process.
#ifndef PAGEMILL_CC_DEVICE_RUN_DELAY_H_
#define PAGEMILL_CC_DEVICE_RUN_DELAY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace pagemill::device {

class RunDelay {
 public:
  // Allocates nothing: pools, which are made outside of a step, construct it inside of one.
  explicit RunDelay(pid_t thread_id, const char* procfs_root = "/proc");
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // nullopt if the system does not report it: some sandboxes, kernels without CONFIG_SCHED_INFO.
  std::optional<int64_t> TotalNs() const;

 private:
  int fd_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_RUN_DELAY_H_
