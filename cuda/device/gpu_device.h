// File: cuda/device/gpu_device.h
// A GPU as a device::Device: memory, streams, events.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<GpuDevice> gpu, GpuDevice::Open(0));
//   Log(gpu->capabilities().name);
//
// Thread-safe, as every Device.
#ifndef PAGEMILL_CUDA_DEVICE_GPU_DEVICE_H_
#define PAGEMILL_CUDA_DEVICE_GPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"

namespace pagemill::gpu {

class GpuDevice final : public device::Device {
 public:
  // kFailedPrecondition, with what is missing, if there is no driver or no GPU of this index.
  static StatusOr<std::unique_ptr<GpuDevice>> Open(int32_t index);

  // Aligned to 256 bytes. kResourceExhausted says how much is free.
  StatusOr<device::DeviceMemory> Allocate(int64_t bytes, const char* purpose) override;
  // Page-locked. kResourceExhausted if the system does not lock as much.
  StatusOr<device::HostMemory> AllocateHost(int64_t bytes, const char* purpose) override;
  StatusOr<device::HostMemory> AllocateMapped(int64_t bytes, const char* purpose) override;
  device::MemoryBytes CountMemory() override;
  StatusOr<std::unique_ptr<device::Stream>> NewStream() override;
  std::unique_ptr<device::Event> NewEvent() override;

  const device::GpuCapabilities& capabilities() const { return capabilities_; }

 private:
  GpuDevice(int32_t index, device::GpuCapabilities capabilities);
  StatusOr<device::HostMemory> AllocateLocked(int64_t bytes, const char* purpose, unsigned flags);
  void Free(std::span<std::byte> bytes) override;
  void FreeHost(std::span<std::byte> bytes) override;

  const int32_t index_;
  const device::GpuCapabilities capabilities_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_GPU_DEVICE_H_
