// File: cc/device/populate_ahead.h
// Takes memory for pages before somebody writes to them, in a thread of its own. A page's first
// write waits until the kernel has cleared it: 0.1 ms for a large page of 2 MiB, a few where a
// virtual machine asks its host for it. Without this those waits are part of the steps that reach
// new pages of the KV cache.
//
//   PopulateAhead ahead({layer_0, layer_1});   // while weights are read, say
//
// Regions are filled at the same pace, from their beginnings: those of a KV cache's layers, whose
// blocks are used in this order. Contents stay as they are, so regions may be in use meanwhile.
// Advice: where the system does not know the request (Linux before 5.14, emulators) or has no
// memory left, the thread ends, and pages come with their first write.
//
// Thread safety: one owner. The destructor waits for the piece at hand; it goes before the regions.
#ifndef PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
#define PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace pagemill::device {

class PopulateAhead {
 public:
  explicit PopulateAhead(std::vector<std::span<std::byte>> regions);
  ~PopulateAhead();
  PopulateAhead(const PopulateAhead&) = delete;
  PopulateAhead& operator=(const PopulateAhead&) = delete;

  // Until all regions have their pages; false where the system refused one.
  bool Wait();

 private:
  void Run(const std::vector<std::span<std::byte>>& regions);

  std::atomic<bool> stopping_ = false;
  std::atomic<bool> refused_ = false;
  std::thread thread_;
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_POPULATE_AHEAD_H_
