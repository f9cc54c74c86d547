#include <cuda_runtime.h>

#include "cuda/device/capabilities.h"

namespace pagemill::cuda {

std::optional<device::GpuCapabilities> ReadCapabilities(int32_t device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return std::nullopt;
  return device::GpuCapabilities{
      .name = properties.name,
      .compute_major = properties.major,
      .compute_minor = properties.minor,
      .multiprocessors = properties.multiProcessorCount,
      .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      .shared_memory_per_block_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
  };
}

}  // namespace pagemill::cuda
