// File: cc/device/device.h
// A device that runs programs: it has memory with its own addresses, and streams of work. The host
// may pass such addresses on and compute with them; only the device dereferences them.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceMemory arena, device.Allocate(1 << 20, "activations"));
//   std::byte* x = arena.data() + 4096;
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

// A range of device memory, freed by the destructor. The device must outlive it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device* device, std::span<std::byte> bytes) : device_(device), bytes_(bytes) {}
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // A device address, aligned to at least 64 bytes.
  std::byte* data() const { return bytes_.data(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::span<std::byte> bytes_;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  // kResourceExhausted, with `purpose` in the message, if not enough memory is left.
  virtual StatusOr<DeviceMemory> Allocate(int64_t bytes, const char* purpose) = 0;
  virtual StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  virtual std::unique_ptr<Event> NewEvent() = 0;

 private:
  friend class DeviceMemory;
  virtual void Free(std::span<std::byte> bytes) = 0;
};

inline DeviceMemory::~DeviceMemory() {
  if (device_ != nullptr) device_->Free(bytes_);
}

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_DEVICE_H_
