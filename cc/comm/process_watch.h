// File: cc/comm/process_watch.h
// Detects that a process has ended, whether or not it is a child of this one.
//
//   ProcessWatch peer(process_id);
//   if (peer.HasEnded()) ...
//
// A zombie (not yet waited for by its parent) has ended. The first check opens the process (man 2
// pidfd_open), so that a reused id is not mistaken for it; on a kernel without pidfds the end is
// visible only once the parent has waited. Cost of a check: a system call. Ownership: a descriptor.
// Thread safety: none.
#ifndef PAGEMILL_CC_COMM_PROCESS_WATCH_H_
#define PAGEMILL_CC_COMM_PROCESS_WATCH_H_

#include <cstdint>

namespace pagemill::comm {

class ProcessWatch {
 public:
  explicit ProcessWatch(int32_t process_id) : process_id_(process_id) {}
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  bool HasEnded();
  // Ends it (SIGKILL); it runs no more, and HasEnded() is true soon.
  void Kill();

 private:
  enum class State : uint8_t { kNew, kHeld, kUnheld, kEnded };

  const int32_t process_id_;
  State state_ = State::kNew;
  int fd_ = -1;  // in kHeld
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_PROCESS_WATCH_H_
