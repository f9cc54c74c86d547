// File: cc/device/run_delay.h
// How long a thread has waited for a core while it could have run, as the kernel counts it: what
// other processes on its core cost it.
//
//   RunDelay delay(gettid());
//   std::optional<int64_t> ns = delay.TotalNs();   // since the thread began; ~0.5 us
//
// Counted when a wait is over. Thread-safe: any thread may ask about any of its process.
#ifndef PAGEMILL_CC_DEVICE_RUN_DELAY_H_
#define PAGEMILL_CC_DEVICE_RUN_DELAY_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace pagemill::device {

class RunDelay {
 public:
  // Allocates nothing: pools are made outside of a step, and look inside of one.
  explicit RunDelay(pid_t thread_id, const char* procfs_root = "/proc");
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // nullopt where the system does not tell: some sandboxes, kernels without CONFIG_SCHED_INFO.
  std::optional<int64_t> TotalNs() const;

 private:
  int fd_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_RUN_DELAY_H_
