// File: cc/device/testing/test_device.h
// A device for tests, made of this process' memory and a thread for each stream, that behaves as a
// GPU does where that matters: work is done later than it is enqueued, graphs replay recorded
// addresses, and the addresses that Allocate() gives lie where nothing can be read or written, so
// that a dereference by the host faults. Only work on a stream may look behind them.
//
//   TestDevice device;
//   std::unique_ptr<Stream> stream = *device.NewStream();
//   device.Hold();                                   // nothing is done ...
//   static_cast<TestStream&>(*stream).Enqueue([=](TestWorker& worker) {
//     std::byte* x = worker.Translate(address, 64);  // null: no memory of this device
//     ...
//     return OkStatus();
//   });
//   device.Release();                                // ... until here
//
// New memory holds 0xff in every byte: NaN in every floating-point type. Addresses are never used
// twice, so that one that was freed is found out. Test code only.
#ifndef PAGEMILL_CC_DEVICE_TESTING_TEST_DEVICE_H_
#define PAGEMILL_CC_DEVICE_TESTING_TEST_DEVICE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/device/thread_pool.h"

namespace pagemill::device::testing {

class TestDevice;

// What work on a stream may use.
class TestWorker {
 public:
  TestWorker(const TestDevice& device, ThreadPool& pool) : device_(device), pool_(pool) {}

  // Where the bytes behind an address of the device are; null unless all of them are in one
  // allocation that still exists.
  std::byte* Translate(const void* address, int64_t bytes) const;
  ThreadPool& pool() { return pool_; }  // of one thread

 private:
  const TestDevice& device_;
  ThreadPool& pool_;
};

using TestWork = std::function<Status(TestWorker& worker)>;

// The first work that fails is the last that is done; Event::Synchronize() reports it.
class TestStream : public Stream {
 public:
  virtual void Enqueue(TestWork work) = 0;
};

class TestDevice final : public Device {
 public:
  TestDevice();
  ~TestDevice() override;  // all memory has been freed

  StatusOr<DeviceMemory> Allocate(int64_t bytes, const char* purpose) override;
  StatusOr<std::unique_ptr<Stream>> NewStream() override;
  std::unique_ptr<Event> NewEvent() override;

  // Streams do nothing between the two. A thread that then waits for work waits for ever.
  void Hold();
  void Release();
  // Pieces of work that were enqueued, those of replayed graphs included, and graphs replayed.
  int64_t num_enqueued() const;
  int64_t num_replays() const;

 private:
  friend class TestWorker;
  class StreamOnThread;
  class PointInStream;
  void WaitUntilReleased();
  void Free(std::span<std::byte> bytes) override;

  mutable std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  int64_t num_enqueued_ = 0;
  int64_t num_replays_ = 0;
  std::span<std::byte> reserved_;  // addresses without memory
  size_t num_reserved_bytes_used_ = 0;
  std::map<const std::byte*, std::vector<std::byte>> allocations_;  // by their addresses
};

}  // namespace pagemill::device::testing

#endif  // PAGEMILL_CC_DEVICE_TESTING_TEST_DEVICE_H_
