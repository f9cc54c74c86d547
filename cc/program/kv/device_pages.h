// File: cc/program/kv/device_pages.h
// The pages of a program's KV cache on a device as bytes, for tiers, connectors and saved sessions.
// Made by DeviceExecutor.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<DevicePages> pages,
//                             DevicePages::Create(kv.bytes(), /*page_bytes=*/8192, device));
//   PAGEMILL_RETURN_IF_ERROR(pages->Read(GroupId(0), BlockId(7), bytes));
//
// A page is one piece of the device's memory, so it is one copy, on a stream beside that of the
// steps: no step waits for it, except for its turn on the bus. The calling thread waits. No stream
// has to wait for another: as with every PageStore, a page is copied only while no uncollected step
// uses it, and a step that uses a page that was written is enqueued after Write() has returned.
//
// Copies go through a buffer of one page that the device copies by itself, unless the host's bytes
// are in memory of NewHostMemory(). kNumCopies threads copy at the same time, others wait for one
// of them.
//
// The device and the arena must outlive it. Thread safety: as PageStore.
#ifndef PAGEMILL_CC_PROGRAM_KV_DEVICE_PAGES_H_
#define PAGEMILL_CC_PROGRAM_KV_DEVICE_PAGES_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/step/page_store.h"

namespace pagemill::program {

class DevicePages final : public step::PageStore {
 public:
  static constexpr int64_t kNumCopies = 2;

  // `arena` is device memory. Allocates kNumCopies * page_bytes of host memory.
  static StatusOr<std::unique_ptr<DevicePages>> Create(std::span<std::byte> arena,
                                                       int64_t page_bytes, device::Device& device);

  size_t page_bytes(step::GroupId) const override { return page_bytes_; }
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override;
  Status Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override;
  // The arena is elsewhere now or, if it is empty, nowhere: then pages are not copied. Only while
  // none is.
  void Move(std::span<std::byte> arena);
  // kResourceExhausted if the system does not lock as much.
  StatusOr<std::span<std::byte>> NewHostMemory(size_t bytes) override;

 private:
  // What one copy uses.
  struct Copier {
    device::HostMemory buffer;
    std::unique_ptr<device::Event> copied;
    std::unique_ptr<device::Stream> stream;  // last: it waits for work that uses the others
    Status Finish();
  };
  class Turn;  // of a thread, with a copier

  DevicePages(std::span<std::byte> arena, size_t page_bytes, device::Device& device)
      : page_bytes_(page_bytes), device_(device), arena_(arena) {}
  StatusOr<std::byte*> Page(step::BlockId block, size_t size) const;
  bool IsOwn(std::span<const std::byte> host) const;

  const size_t page_bytes_;
  device::Device& device_;
  mutable std::mutex mutex_;
  std::span<std::byte> arena_;  // guarded by mutex_
  mutable std::condition_variable returned_;
  mutable std::array<Copier, kNumCopies> copiers_;
  mutable std::vector<Copier*> idle_;       // guarded by mutex_
  std::vector<device::HostMemory> memory_;  // of NewHostMemory(); guarded by mutex_
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_KV_DEVICE_PAGES_H_
