// File: cc/device/populate_ahead.h
// Populates pages in a background thread before they are first written. A page's first write waits
// until the kernel has cleared it: 0.1 ms for a large page of 2 MiB, a few milliseconds if a
// virtual machine requests it from its host. Without this, the steps that reach new pages of the KV
// cache would wait.
//
//   PopulateAhead ahead(arena, &activity);   // while weights are read, say
//
// The region is populated from its beginning, the order in which the pages of a KV cache are first
// used. Contents do not change, and the region may be in use meanwhile.
//
// The thread rests while `activity` says that something computes, and until nothing has computed for
// kRest: then steps populate pages themselves, as without it. The lowest priority (nice 19), which it
// has beside other processes, would not do: nothing interrupts a kernel that provides a page for
// milliseconds, so a computing thread that slept on the same core waits for it, and after that for the
// next page. Pages are touched one by one instead of with madvise(), which would hold the lock of the
// address space while the thread waits for a core. Regions smaller than kLeastBytes are not populated
// ahead.
//
// Thread safety: one owner. The destructor waits until the thread has finished the current page or
// rest; destroy it before the region and the activity.
#ifndef PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
#define PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include "cc/device/activity.h"

namespace pagemill::device {

class PopulateAhead {
 public:
  static constexpr size_t kLeastBytes = size_t{4} << 20;
  static constexpr std::chrono::milliseconds kRest{20};  // longer than between steps of a busy server

  PopulateAhead(std::span<std::byte> region, const Activity* activity);
  ~PopulateAhead();
  PopulateAhead(const PopulateAhead&) = delete;
  PopulateAhead& operator=(const PopulateAhead&) = delete;

  // Waits until the thread is done.
  void Wait();

 private:
  void Run(std::span<std::byte> region) const;
  // Returns when the state is still `state` and idle, else after a rest in which nothing computed, or
  // when the owner goes. Returns the state then.
  uint64_t WaitUntilIdle(uint64_t state) const;

  const Activity* activity_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
