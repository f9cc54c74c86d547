#include "cuda/device/gpu_device.h"

#include <string>
#include <utility>

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {
namespace {

Status OutOfMemory(int64_t bytes, const char* purpose) {
  size_t free = 0, total = 0;
  (void)PAGEMILL_GPU(MemGetInfo)(&free, &total);
  return ResourceExhausted(std::to_string(bytes) + " bytes of " + purpose +
                           " do not fit into the GPU's memory: " + std::to_string(free) + " of " +
                           std::to_string(total) + " bytes are free");
}

}  // namespace

StatusOr<std::unique_ptr<GpuDevice>> GpuDevice::Open(int32_t index) {
  int count = 0;
  if (const auto error = PAGEMILL_GPU(GetDeviceCount)(&count); error != PAGEMILL_GPU(Success)) {
    return FailedPrecondition(std::string("no GPU can be used: ") +
                              PAGEMILL_GPU(GetErrorString)(error));
  }
  if (index < 0 || index >= count) {
    return FailedPrecondition("there is no GPU " + std::to_string(index) + ": the driver has " +
                              std::to_string(count));
  }
  PAGEMILL_GPU(DeviceProp) properties;
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(GetDeviceProperties)(&properties, index),
                                    "to tell its capabilities"));
  device::GpuCapabilities capabilities = {
      .name = properties.name,
      .compute_major = kHasComputeCapability ? properties.major : 0,
      .compute_minor = kHasComputeCapability ? properties.minor : 0,
      .multiprocessors = properties.multiProcessorCount,
      .warp_lanes = properties.warpSize,
      .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      .shared_memory_per_block_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
  };
  return std::unique_ptr<GpuDevice>(new GpuDevice(index, std::move(capabilities)));
}

GpuDevice::GpuDevice(int32_t index, device::GpuCapabilities capabilities)
    : index_(index), capabilities_(std::move(capabilities)) {}

StatusOr<device::DeviceMemory> GpuDevice::Allocate(int64_t bytes, const char* purpose) {
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(SetDevice)(index_), "to be selected"));
  if (bytes == 0) return device::DeviceMemory();
  void* address = nullptr;
  const auto error = PAGEMILL_GPU(Malloc)(&address, static_cast<size_t>(bytes));
  if (error == PAGEMILL_GPU(ErrorMemoryAllocation)) {
    (void)PAGEMILL_GPU(GetLastError)();
    return OutOfMemory(bytes, purpose);
  }
  PAGEMILL_RETURN_IF_ERROR(ToStatus(error, "to allocate memory"));
  return device::DeviceMemory(
      this, {static_cast<std::byte*>(address), static_cast<size_t>(bytes)});
}

void GpuDevice::Free(std::span<std::byte> bytes) {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  (void)PAGEMILL_GPU(Free)(bytes.data());
}

StatusOr<std::unique_ptr<device::Stream>> GpuDevice::NewStream() {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream, GpuStream::Create(index_));
  return std::unique_ptr<device::Stream>(std::move(stream));
}

std::unique_ptr<device::Event> GpuDevice::NewEvent() {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  StatusOr<std::unique_ptr<GpuEvent>> event = GpuEvent::Create();
  PAGEMILL_CHECK(event.ok());
  return *std::move(event);
}

}  // namespace pagemill::gpu
