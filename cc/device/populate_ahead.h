// File: cc/device/populate_ahead.h
// Takes memory for pages before somebody writes to them, in a thread of its own. A page's first
// write waits until the kernel has cleared it: 0.1 ms for a large page of 2 MiB, a few where a
// virtual machine asks its host for it. Without this those waits are part of the steps that reach
// new pages of the KV cache.
//
//   PopulateAhead ahead(arena);   // while weights are read, say
//
// The region is filled from its beginning, the order in which the pages of a KV cache are first
// used. Contents stay as they are, and the region may be in use meanwhile.
//
// The thread has the lowest priority (nice 19): on busy cores it gets one or two hundredths of one,
// and who computes finds pages as they were without it. While the kernel or a host serves one of
// its pages it may still be in the way for a few milliseconds. Pages are touched one by one rather
// than asked for with madvise(), which would keep a lock of the whole address space while the
// thread waits for a core. Less than kLeastBytes are left to their first writes.
//
// Thread safety: one owner. The destructor waits until the thread has had its core for the page at
// hand; it goes before the region.
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

  // Until the thread is done.
  void Wait();

 private:
  void Run(std::span<std::byte> region) const;

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
