#include "cc/comm/process_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace pagemill::comm {

ProcessWatch::~ProcessWatch() {
  if (fd_ >= 0) close(fd_);
}

bool ProcessWatch::HasEnded() {
  if (state_ == State::kNew) {
    fd_ = static_cast<int>(syscall(SYS_pidfd_open, process_id_, 0));
    state_ = fd_ >= 0 ? State::kHeld : errno == ESRCH ? State::kEnded : State::kUnheld;
  }
  if (state_ == State::kHeld) {
    pollfd ended = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&ended, 1, /*timeout=*/0) == 1) state_ = State::kEnded;
  }
  if (state_ == State::kUnheld && kill(process_id_, 0) != 0 && errno == ESRCH) {
    state_ = State::kEnded;
  }
  return state_ == State::kEnded;
}

void ProcessWatch::Kill() {
  if (HasEnded()) return;
  if (state_ == State::kHeld) {
    syscall(SYS_pidfd_send_signal, fd_, SIGKILL, nullptr, 0);
  } else {
    kill(process_id_, SIGKILL);
  }
}

}  // namespace pagemill::comm
