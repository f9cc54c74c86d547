#include "cc/device/populate_ahead.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pagemill::device {
namespace {

// Replaces 0 by 0 atomically: the byte keeps its value whatever other threads write, and the system
// maps its page. Thread sanitizers would report a race with their plain writes.
[[gnu::no_sanitize("thread")]] void Touch(std::byte* byte) {
  unsigned char expected = 0;
  __atomic_compare_exchange_n(reinterpret_cast<unsigned char*>(byte), &expected, 0, /*weak=*/false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace

PopulateAhead::PopulateAhead(std::span<std::byte> region, const Activity* activity)
    : activity_(activity) {
  if (region.size() < kLeastBytes) return;
  thread_ = std::thread([this, region] { Run(region); });
}

PopulateAhead::~PopulateAhead() {
  stopping_ = true;
  Wait();
}

void PopulateAhead::Wait() {
  if (thread_.joinable()) thread_.join();
}

uint64_t PopulateAhead::WaitUntilIdle(uint64_t state) const {
  while (!stopping_) {
    const uint64_t now = activity_->state();
    if (now == state && Activity::IsIdle(now)) break;
    state = now;
    std::this_thread::sleep_for(kRest);
  }
  return state;
}

void PopulateAhead::Run(std::span<std::byte> region) const {
  pthread_setname_np(pthread_self(), "pm-populate");
  (void)setpriority(PRIO_PROCESS, 0, 19);  // for this thread; failure only costs speed
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::byte* const end = region.data() + region.size();
  uint64_t state = activity_->state();
  for (std::byte* at = region.data(); at < end;) {
    state = WaitUntilIdle(state);
    if (stopping_) break;
    Touch(at);
    at += page - reinterpret_cast<uintptr_t>(at) % page;
  }
}

}  // namespace pagemill::device
