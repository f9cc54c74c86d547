// File: cc/comm/process_watch.h
// Sees that a process has ended, whether it is a child of this one or not.
//
//   ProcessWatch peer(process_id);
//   if (peer.HasEnded()) ...
//
// A zombie (not yet waited for by its parent) has ended. The first look takes hold of the process
// (man 2 pidfd_open), so that an id that is used again later is not taken for it; a kernel without
// pidfds sees the end only once the parent has waited. Cost of a look: a system call.
// Ownership: a descriptor. Thread safety: none.
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

 private:
  enum class State : uint8_t { kNew, kHeld, kUnheld, kEnded };

  const int32_t process_id_;
  State state_ = State::kNew;
  int fd_ = -1;  // in kHeld
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_PROCESS_WATCH_H_
