// File: cuda/device/capabilities.h
// What one CUDA device can do, for the op table of this tree. Read once, at start-up.
//
//   if (std::optional<Capabilities> gpu = ReadCapabilities(0)) Log(gpu->name);
//
// Thread-safe; the driver is asked anew at each call (about 1 ms).
#ifndef PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_
#define PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace pagemill::cuda {

struct Capabilities {
  std::string name;
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  // Shared memory that one block may opt in to.
  int64_t shared_memory_per_block_bytes = 0;
};

// Nothing where there is no such device, or no driver.
std::optional<Capabilities> ReadCapabilities(int32_t device);

}  // namespace pagemill::cuda

#endif  // PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_
