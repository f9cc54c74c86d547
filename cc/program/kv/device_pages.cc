#include "cc/program/kv/device_pages.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace pagemill::program {

using step::BlockId;
using step::GroupId;

// Waits for an idle copier and returns it in the end.
class DevicePages::Turn {
 public:
  explicit Turn(const DevicePages& pages) : pages_(pages) {
    std::unique_lock lock(pages.mutex_);
    pages.returned_.wait(lock, [&] { return !pages.idle_.empty(); });
    copier_ = pages.idle_.back();
    pages.idle_.pop_back();
  }
  ~Turn() {
    {
      const std::lock_guard lock(pages_.mutex_);
      pages_.idle_.push_back(copier_);
    }
    pages_.returned_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  Copier* operator->() const { return copier_; }

 private:
  const DevicePages& pages_;
  Copier* copier_;
};

StatusOr<std::unique_ptr<DevicePages>> DevicePages::Create(std::span<std::byte> arena,
                                                           int64_t page_bytes,
                                                           device::Device& device) {
  std::unique_ptr<DevicePages> pages(
      new DevicePages(arena, static_cast<size_t>(page_bytes), device));
  for (Copier& copier : pages->copiers_) {
    PAGEMILL_ASSIGN_OR_RETURN(copier.buffer, device.AllocateHost(page_bytes, "copies of KV pages"));
    copier.copied = device.NewEvent();
    PAGEMILL_ASSIGN_OR_RETURN(copier.stream, device.NewStream());
    pages->idle_.push_back(&copier);
  }
  return pages;
}

Status DevicePages::Copier::Finish() {
  stream->Record(*copied);
  return copied->Synchronize();
}

Status DevicePages::Read(GroupId, BlockId block, std::span<std::byte> to) const {
  PAGEMILL_ASSIGN_OR_RETURN(const std::byte* const page, Page(block, to.size()));
  const Turn copier(*this);
  const bool own = IsOwn(to);
  copier->stream->CopyToHost(own ? to : copier->buffer.bytes(), page);
  PAGEMILL_RETURN_IF_ERROR(copier->Finish());
  if (!own) std::memcpy(to.data(), copier->buffer.data(), to.size());
  return OkStatus();
}

Status DevicePages::Write(GroupId, BlockId block, std::span<const std::byte> from) {
  PAGEMILL_ASSIGN_OR_RETURN(std::byte* const page, Page(block, from.size()));
  const Turn copier(*this);
  const bool own = IsOwn(from);
  if (!own) std::memcpy(copier->buffer.data(), from.data(), from.size());
  copier->stream->CopyToDevice(page, own ? from : copier->buffer.bytes());
  return copier->Finish();
}

StatusOr<std::span<std::byte>> DevicePages::NewHostMemory(size_t bytes) {
  PAGEMILL_ASSIGN_OR_RETURN(
      device::HostMemory memory,
      device_.AllocateHost(static_cast<int64_t>(bytes), "KV blocks (--kv-offloading-bytes)"));
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(memory));
  return memory_.back().bytes();
}

void DevicePages::Move(std::span<std::byte> arena) {
  const std::lock_guard lock(mutex_);
  arena_ = arena;
}

StatusOr<std::byte*> DevicePages::Page(BlockId block, size_t size) const {
  PAGEMILL_CHECK(size == page_bytes_);
  PAGEMILL_CHECK(block.value() >= 0);
  const size_t index = static_cast<size_t>(block.value());
  const std::lock_guard lock(mutex_);
  if (arena_.empty()) return FailedPrecondition("the KV cache is not in memory");
  PAGEMILL_CHECK(index < arena_.size() / page_bytes_);
  return arena_.data() + index * page_bytes_;
}

bool DevicePages::IsOwn(std::span<const std::byte> host) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(memory_.begin(), memory_.end(), [&](const device::HostMemory& memory) {
    const std::span<const std::byte> own = memory.bytes();
    return !std::less<>()(host.data(), own.data()) &&
           !std::less<>()(own.data() + own.size(), host.data() + host.size());
  });
}

}  // namespace pagemill::program
