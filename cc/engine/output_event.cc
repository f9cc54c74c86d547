#include "cc/engine/output_event.h"

#ifdef __linux__
#include <sys/eventfd.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace pagemill::engine {

#ifdef __linux__

OutputEvent::OutputEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

OutputEvent::~OutputEvent() {
  if (fd_ >= 0) close(fd_);
}

void OutputEvent::Set() {
  // Fails only where the counter is full, and then the descriptor is readable anyway.
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof(one));
}

void OutputEvent::Clear() {
  // Reading takes the whole counter; fails only where it is 0 already.
  uint64_t count = 0;
  [[maybe_unused]] const auto got = read(fd_, &count, sizeof(count));
}

#else

OutputEvent::OutputEvent() = default;
OutputEvent::~OutputEvent() = default;
void OutputEvent::Set() {}
void OutputEvent::Clear() {}

#endif

}  // namespace pagemill::engine
