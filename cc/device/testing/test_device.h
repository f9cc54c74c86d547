// File: cc/device/testing/test_device.h
// A fake device, made of this process's memory and a thread per stream, that behaves like a GPU in
// the relevant ways: work executes later than it is enqueued, graphs replay recorded addresses, and
// device memory is accessible only while a stream has work to execute: before and after, a
// dereference by the host faults. Of the host's memory, kernels find only what is mapped.
//
//   TestDevice device;
//   std::unique_ptr<Stream> stream = *device.NewStream();
//   device.Hold();                                   // no work is executed ...
//   static_cast<TestStream&>(*stream).Enqueue([=](TestWorker& worker) {
//     std::byte* x = worker.Find(address, 64);  // null: not 64 bytes of this device's memory
//     ...
//     return OkStatus();
//   });
//   device.Release();                                // ... until here
//
// New memory is filled with 0xff: NaN in every floating-point type. Addresses are never reused, so
// that use after free faults. An access past the end of an allocation faults; AddressSanitizer also
// reports one before its beginning. Copies of host memory that is not the device's (AllocateHost)
// are counted, as they would wait on a GPU. Test code only.
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

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/device/thread_pool.h"

namespace pagemill::device::testing {

class TestDevice;

// Services for work on a stream.
class TestWorker {
 public:
  TestWorker(const TestDevice& device, ThreadPool& pool) : device_(device), pool_(pool) {}

  // `address`, to be written to; null unless all of these bytes are in one live allocation, of the
  // device or mapped.
  std::byte* Find(const void* address, int64_t bytes) const;
  ThreadPool& pool() { return pool_; }  // of one thread

 private:
  const TestDevice& device_;
  ThreadPool& pool_;
};

using TestWork = std::function<Status(TestWorker& worker)>;

// Stops at the first work that fails; Event::Synchronize() reports it.
class TestStream : public Stream {
 public:
  virtual void Enqueue(TestWork work) = 0;
};

class TestDevice final : public Device {
 public:
  static constexpr int64_t kMemoryBytes = int64_t{1} << 30;

  explicit TestDevice(int64_t memory_bytes = kMemoryBytes);
  ~TestDevice() override;  // all memory must have been freed

  StatusOr<DeviceMemory> Allocate(int64_t bytes, const char* purpose) override;
  StatusOr<HostMemory> AllocateHost(int64_t bytes, const char* purpose) override;
  StatusOr<HostMemory> AllocateMapped(int64_t bytes, const char* purpose) override;
  MemoryBytes CountMemory() override;
  StatusOr<std::unique_ptr<Stream>> NewStream() override;
  std::unique_ptr<Event> NewEvent() override;

  // Between the two calls, streams execute nothing. A thread that waits for work in between never
  // returns.
  void Hold();
  void Release();
  // Makes the allocation that begins at `address`, once, memory that other processes can map: a
  // descriptor of its pages, for the caller to close. The allocation begins `*offset` bytes into
  // them.
  StatusOr<int> Share(const std::byte* address, size_t* offset);
  // From here on, EndCapture() finds no memory for a graph.
  void RefuseGraphs();
  // Enqueued pieces of work, including those of replayed graphs; and replayed graphs.
  int64_t num_enqueued() const;
  int64_t num_replays() const;
  // Copies between the device and host memory that is not from AllocateHost().
  int64_t num_pageable_copies() const;
  int64_t most_host_bytes() const;  // of the host's memory, at the same time

 private:
  friend class TestWorker;
  class StreamOnThread;
  class PointInStream;
  // Between the two calls, memory is accessible.
  void Begin();
  void End();
  void SetAccess(bool accessible);  // of all allocations; `mutex_` is held
  void WaitUntilReleased();
  void Free(std::span<std::byte> bytes) override;
  void FreeHost(std::span<std::byte> bytes) override;
  void CountCopy(std::span<const std::byte> host);

  const int64_t memory_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  bool refuses_graphs_ = false;
  int64_t num_enqueued_ = 0;
  int64_t num_replays_ = 0;
  int64_t num_pageable_copies_ = 0;
  int64_t allocated_bytes_ = 0;
  int64_t host_bytes_ = 0;
  int64_t most_host_bytes_ = 0;
  int32_t num_executing_ = 0;      // pieces of work
  std::span<std::byte> reserved_;  // addresses without memory
  size_t num_reserved_bytes_used_ = 0;
  std::map<const std::byte*, std::span<std::byte>> allocations_;       // by address
  std::map<const std::byte*, std::span<std::byte>> host_allocations_;  // likewise
  std::map<const std::byte*, std::span<std::byte>> mapped_;            // of these, for kernels too
};

}  // namespace pagemill::device::testing

#endif  // PAGEMILL_CC_DEVICE_TESTING_TEST_DEVICE_H_
