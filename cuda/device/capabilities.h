// File: cuda/device/capabilities.h
// What one CUDA device can do, for the op table of this tree. Read once, at start-up.
//
//   if (std::optional<device::GpuCapabilities> gpu = ReadCapabilities(0)) Log(gpu->name);
//
// Thread-safe; the driver is queried at each call (about 1 ms).
#ifndef PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_
#define PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_

#include <optional>

#include "cc/device/capabilities.h"

namespace pagemill::cuda {

// Nothing if there is no such device, or no driver.
std::optional<device::GpuCapabilities> ReadCapabilities(int32_t device);

}  // namespace pagemill::cuda

#endif  // PAGEMILL_CUDA_DEVICE_CAPABILITIES_H_
