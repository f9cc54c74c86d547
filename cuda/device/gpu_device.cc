#include "cuda/device/gpu_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {
namespace {

// The error of an allocation as a refusal; other errors as they are.
Status ToRefusal(PAGEMILL_GPU(Error_t) error, const std::string& refusal) {
  if (error != PAGEMILL_GPU(ErrorMemoryAllocation)) return ToStatus(error, "to allocate memory");
  (void)PAGEMILL_GPU(GetLastError)();
  return ResourceExhausted(refusal);
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
      .compute_major = properties.major,
      .compute_minor = properties.minor,
      .multiprocessors = properties.multiProcessorCount,
      .warp_lanes = properties.warpSize,
      .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      // ROCm 6 tells all of it as the former, and 0 as the latter.
      .shared_memory_per_block_bytes = static_cast<int64_t>(
          std::max(properties.sharedMemPerBlock, properties.sharedMemPerBlockOptin)),
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
  if (error != PAGEMILL_GPU(Success)) {
    const device::MemoryBytes memory = CountMemory();
    return ToRefusal(error, std::to_string(bytes) + " bytes of " + purpose +
                                " do not fit into the GPU's memory: " +
                                std::to_string(memory.free) + " of " +
                                std::to_string(memory.total) + " bytes are free");
  }
  return device::DeviceMemory(
      this, {static_cast<std::byte*>(address), static_cast<size_t>(bytes)});
}

StatusOr<device::HostMemory> GpuDevice::AllocateHost(int64_t bytes, const char* purpose) {
  return AllocateLocked(bytes, purpose, PAGEMILL_GPU(HostAllocDefault));
}

// With unified addressing, which every GPU of a 64-bit system has, the addresses are the host's.
StatusOr<device::HostMemory> GpuDevice::AllocateMapped(int64_t bytes, const char* purpose) {
  return AllocateLocked(bytes, purpose, PAGEMILL_GPU(HostAllocMapped));
}

StatusOr<device::HostMemory> GpuDevice::AllocateLocked(int64_t bytes, const char* purpose,
                                                       unsigned flags) {
  PAGEMILL_RETURN_IF_ERROR(ToStatus(PAGEMILL_GPU(SetDevice)(index_), "to be selected"));
  if (bytes == 0) return device::HostMemory();
  void* address = nullptr;
  const auto error = PAGEMILL_GPU(HostAlloc)(&address, static_cast<size_t>(bytes), flags);
  if (error != PAGEMILL_GPU(Success)) {
    return ToRefusal(error, "the system does not lock " + std::to_string(bytes) + " bytes of " +
                                purpose + " in its memory for the GPU");
  }
  return device::HostMemory(this, {static_cast<std::byte*>(address), static_cast<size_t>(bytes)});
}

device::MemoryBytes GpuDevice::CountMemory() {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  size_t free = 0, total = 0;
  (void)PAGEMILL_GPU(MemGetInfo)(&free, &total);
  return {.free = static_cast<int64_t>(free), .total = static_cast<int64_t>(total)};
}

void GpuDevice::FreeHost(std::span<std::byte> bytes) {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  (void)PAGEMILL_GPU(FreeHost)(bytes.data());
}

void GpuDevice::Free(std::span<std::byte> bytes) {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  (void)PAGEMILL_GPU(Free)(bytes.data());
}

StatusOr<std::unique_ptr<device::Stream>> GpuDevice::NewStream() {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream,
                            GpuStream::Create(index_, capabilities_));
  return std::unique_ptr<device::Stream>(std::move(stream));
}

std::unique_ptr<device::Event> GpuDevice::NewEvent() {
  (void)PAGEMILL_GPU(SetDevice)(index_);
  StatusOr<std::unique_ptr<GpuEvent>> event = GpuEvent::Create();
  PAGEMILL_CHECK(event.ok());
  return *std::move(event);
}

}  // namespace pagemill::gpu
