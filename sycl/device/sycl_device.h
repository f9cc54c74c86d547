// File: sycl/device/sycl_device.h
// The devices of the SYCL runtime: Intel GPUs and, for tests, the CPU through OpenCL.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::vector<FoundSyclDevice> found, FindSyclDevices(SyclKind::kGpu));
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<SyclDevice> device,
//                             SyclDevice::Open(SyclKind::kGpu, 0));
//
// Streams are in-order queues, memory is device USM, and graphs are command graphs recorded from a
// queue (sycl_ext_oneapi_graph). The runtime's exceptions become a Status here. Thread-safe.
#ifndef PAGEMILL_SYCL_DEVICE_SYCL_DEVICE_H_
#define PAGEMILL_SYCL_DEVICE_SYCL_DEVICE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {

enum class SyclKind { kGpu, kCpu };

struct FoundSyclDevice {
  std::string name;
  std::string backend;  // "Level Zero", "OpenCL": what the runtime drives it by
  int64_t memory_bytes = 0;
};

// Those of a kind by index; GPUs are Intel's. kFailedPrecondition says why there are none.
StatusOr<std::vector<FoundSyclDevice>> FindSyclDevices(SyclKind kind);

class SyclDevice final : public device::Device {
 public:
  // `index` is that of FindSyclDevices(). kFailedPrecondition if there is no such device, or if it
  // cannot compile kernels or record graphs; the message says what to install.
  static StatusOr<std::unique_ptr<SyclDevice>> Open(SyclKind kind, int32_t index);
  // All memory and streams must be gone, and main() must not have returned: the runtime may be gone
  // when static objects are destroyed.
  ~SyclDevice() override;

  const device::Capabilities& capabilities() const;
  int64_t num_replays() const;  // of graphs, so far
  // Compiles the module, unless it has been, before one of its kernels is launched.
  Status Compile(const KernelModule& module);

  StatusOr<device::DeviceMemory> Allocate(int64_t bytes, const char* purpose) override;
  StatusOr<device::HostMemory> AllocateHost(int64_t bytes, const char* purpose) override;
  StatusOr<device::HostMemory> AllocateMapped(int64_t bytes, const char* purpose) override;
  // All of it is free if the driver does not say.
  device::MemoryBytes CountMemory() override;
  StatusOr<std::unique_ptr<device::Stream>> NewStream() override;
  std::unique_ptr<device::Event> NewEvent() override;

 private:
  struct State;
  explicit SyclDevice(std::unique_ptr<State> state);
  void Free(std::span<std::byte> bytes) override;
  void FreeHost(std::span<std::byte> bytes) override;

  const std::unique_ptr<State> state_;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_SYCL_DEVICE_H_
