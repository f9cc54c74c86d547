#include "cc/kv_transfer/tcp/wakeup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace pagemill::kv_transfer {

Wakeup::Wakeup() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Wakeup::~Wakeup() {
  if (fd_ >= 0) close(fd_);
}

void Wakeup::Notify() const {
  const uint64_t one = 1;
  // Fails only if the counter is full, and then it is readable anyway.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof(one));
}

void Wakeup::Clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = read(fd_, &count, sizeof(count));
}

}  // namespace pagemill::kv_transfer
