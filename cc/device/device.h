// File: cc/device/device.h
// A device that runs programs: it has memory with its own addresses, and streams of work. The host
// may pass such addresses on and compute with them; only the device dereferences them.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceMemory arena, device.Allocate(1 << 20, "activations"));
//   std::byte* x = arena.data() + 4096;
//   PAGEMILL_ASSIGN_OR_RETURN(HostMemory input, device.AllocateHost(4096, "input"));
//   stream->CopyToDevice(x, input.bytes());
//
// The CPU that runs the process is not a Device: its kernels compute in host memory, on the
// caller's thread and a thread_pool.h.
#ifndef PAGEMILL_CC_DEVICE_DEVICE_H_
#define PAGEMILL_CC_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/stream.h"

namespace pagemill::device {

class Device;

enum class MemoryKind : uint8_t { kDevice, kHost };

// A range of memory that a device provides, freed by the destructor. The device must outlive it.
template <MemoryKind kKind>
class Memory {
 public:
  Memory() = default;
  Memory(Device* device, std::span<std::byte> bytes) : device_(device), bytes_(bytes) {}
  ~Memory();
  Memory(Memory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Aligned to at least 64 bytes.
  std::byte* data() const { return bytes_.data(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::span<std::byte> bytes_;
};

using DeviceMemory = Memory<MemoryKind::kDevice>;  // at device addresses
using HostMemory = Memory<MemoryKind::kHost>;      // of the host, for copies from and to the device

struct MemoryBytes {
  int64_t free = 0;
  int64_t total = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  // kResourceExhausted, with `purpose` in the message, if not enough memory is left.
  virtual StatusOr<DeviceMemory> Allocate(int64_t bytes, const char* purpose) = 0;
  // Host memory whose copies from and to the device run while the host continues. Copies of other
  // host memory are correct, but may wait. The system cannot swap it, so it is scarce.
  virtual StatusOr<HostMemory> AllocateHost(int64_t bytes, const char* purpose) = 0;
  // As AllocateHost(). Kernels read this memory, too: over the bus, at the same addresses.
  virtual StatusOr<HostMemory> AllocateMapped(int64_t bytes, const char* purpose) = 0;
  // The device's memory; that of the system if both share it.
  virtual MemoryBytes CountMemory() = 0;
  virtual StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  virtual std::unique_ptr<Event> NewEvent() = 0;

 private:
  template <MemoryKind kKind>
  friend class Memory;
  virtual void Free(std::span<std::byte> bytes) = 0;
  virtual void FreeHost(std::span<std::byte> bytes) = 0;
};

template <MemoryKind kKind>
Memory<kKind>::~Memory() {
  if (device_ == nullptr) return;
  if constexpr (kKind == MemoryKind::kDevice) {
    device_->Free(bytes_);
  } else {
    device_->FreeHost(bytes_);
  }
}

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_DEVICE_H_
