#include "cc/device/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace pagemill::device {

RunDelay::RunDelay(pid_t thread_id, const char* procfs_root) : fd_(-1) {
  char path[256];
  const int size =
      std::snprintf(path, sizeof(path), "%s/self/task/%d/schedstat", procfs_root, thread_id);
  if (size < static_cast<int>(sizeof(path))) fd_ = ::open(path, O_RDONLY | O_CLOEXEC);
}

RunDelay::~RunDelay() {
  if (fd_ >= 0) ::close(fd_);
}

// Parses "12345 678 90": ns on a core, ns of waiting for one, number of time slices.
std::optional<int64_t> RunDelay::TotalNs() const {
  char text[80];
  const ssize_t size = fd_ >= 0 ? ::pread(fd_, text, sizeof(text), 0) : -1;
  if (size <= 0) return std::nullopt;
  const char* const end = text + size;
  const char* at = text;
  while (at < end && *at != ' ') ++at;
  if (at < end) ++at;
  int64_t waited_ns = 0;
  if (std::from_chars(at, end, waited_ns).ec != std::errc()) return std::nullopt;
  return waited_ns;
}

}  // namespace pagemill::device
