#include "cc/device/populate_ahead.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pagemill::device {
namespace {

constexpr size_t kPiece = size_t{2} << 20;  // a large page of most systems

// Writes 0 where 0 is, atomically: as good as no write for those who use the byte, and one for the
// kernel. Thread sanitizers would call it a race with plain writes of theirs.
[[gnu::no_sanitize("thread")]] void Touch(std::byte* byte) {
  unsigned char expected = 0;
  __atomic_compare_exchange_n(reinterpret_cast<unsigned char*>(byte), &expected, 0, /*weak=*/false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace

PopulateAhead::PopulateAhead(std::vector<std::span<std::byte>> regions) {
  size_t bytes = 0;
  for (std::span<std::byte> region : regions) bytes += region.size();
  if (bytes < kLeastBytes) return;
  thread_ = std::thread([this, regions = std::move(regions)] { Run(regions); });
}

PopulateAhead::~PopulateAhead() {
  stopping_ = true;
  Wait();
}

void PopulateAhead::Wait() {
  if (thread_.joinable()) thread_.join();
}

void PopulateAhead::Run(const std::vector<std::span<std::byte>>& regions) const {
  pthread_setname_np(pthread_self(), "pm-populate");
  (void)setpriority(PRIO_PROCESS, 0, 19);  // of this thread; refused: in the way, not wrong
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  bool more = true;
  for (size_t begin = 0; more; begin += kPiece) {
    more = false;
    for (std::span<std::byte> region : regions) {
      if (begin >= region.size()) continue;
      more = true;
      std::byte* const end = region.data() + std::min(region.size(), begin + kPiece);
      for (std::byte* at = region.data() + begin; at < end;) {
        if (stopping_) return;
        Touch(at);
        at += page - reinterpret_cast<uintptr_t>(at) % page;
      }
    }
  }
}

}  // namespace pagemill::device
