// File: cc/device/populate_ahead.h
// Populates pages in a background thread before they are first written. A page's first write waits
// until the kernel has cleared it: 0.1 ms for a large page of 2 MiB, a few milliseconds if a
// virtual machine requests it from its host. Without this, the steps that reach new pages of the KV
// cache would wait.
//
//   PopulateAhead ahead(arena);   // while weights are read, say
//
// The region is populated from its beginning, the order in which the pages of a KV cache are first
// used. Contents do not change, and the region may be in use meanwhile.
//
// The thread has the lowest priority (nice 19): on busy cores it gets one or two percent of a core,
// and other threads populate pages themselves, as without it. While the kernel or a host provides a
// page, it may still delay others for a few milliseconds. Pages are touched one by one instead of
// with madvise(), which would hold the lock of the address space while the thread waits for a core.
// Regions smaller than kLeastBytes are not populated ahead.
//
// Thread safety: one owner. The destructor waits until the thread has finished the current page;
// destroy it before the region.
#ifndef PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
#define PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

namespace pagemill::device {

class PopulateAhead {
 public:
  static constexpr size_t kLeastBytes = size_t{4} << 20;

  explicit PopulateAhead(std::span<std::byte> region);
  ~PopulateAhead();
  PopulateAhead(const PopulateAhead&) = delete;
  PopulateAhead& operator=(const PopulateAhead&) = delete;

  // Waits until the thread is done.
  void Wait();

 private:
  void Run(std::span<std::byte> region) const;

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
