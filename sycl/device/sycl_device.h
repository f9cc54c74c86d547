// File: sycl/device/sycl_device.h
// A device of the SYCL runtime: an Intel GPU, or the CPU through OpenCL.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<SyclDevice> device,
//                       SyclDevice::Open(SyclDevice::Kind::kGpu));
//   Target target = {.ops = SyclOps(), .capabilities = device->capabilities()};
//
// Streams are in-order queues, memory is device USM, and graphs are command graphs recorded from a
// queue (sycl_ext_oneapi_graph). The runtime's exceptions become a Status here. Thread-safe.
#ifndef PAGEMILL_SYCL_DEVICE_SYCL_DEVICE_H_
#define PAGEMILL_SYCL_DEVICE_SYCL_DEVICE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"

namespace pagemill::sycl {

class SyclDevice final : public device::Device {
 public:
  enum class Kind { kGpu, kCpu };

  // The first device of this kind. kUnavailable if there is none, or if it cannot compile kernels
  // or record graphs; the message says what to install.
  static StatusOr<std::unique_ptr<SyclDevice>> Open(Kind kind);
  // All memory and streams must be gone, and main() must not have returned: the runtime may be gone
  // when static objects are destroyed.
  ~SyclDevice() override;

  device::Capabilities capabilities() const;
  int64_t num_replays() const;  // of graphs, so far

  StatusOr<device::DeviceMemory> Allocate(int64_t bytes, const char* purpose) override;
  StatusOr<device::HostMemory> AllocateHost(int64_t bytes, const char* purpose) override;
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
