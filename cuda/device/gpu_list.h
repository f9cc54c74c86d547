// File: cuda/device/gpu_list.h
// The GPUs of this machine, and whether this library has code for them.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::vector<FoundGpu> gpus, FindGpus());
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<GpuDevice> gpu, GpuDevice::Open(0));
//   PAGEMILL_RETURN_IF_ERROR(CheckRunsKernels(*gpu, gpus[0]));
#ifndef PAGEMILL_CUDA_DEVICE_GPU_LIST_H_
#define PAGEMILL_CUDA_DEVICE_GPU_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cuda/device/gpu_device.h"

namespace pagemill::gpu {

struct FoundGpu {
  std::string name;
  std::string architecture;  // "sm_90", "gfx942"
  int64_t memory_bytes = 0;
};

// By index. Takes no memory of them. kFailedPrecondition says why there are none: no driver, no
// GPU.
StatusOr<std::vector<FoundGpu>> FindGpus();

// Runs an empty kernel. kFailedPrecondition if that fails, with the architectures that this library
// is compiled for.
Status CheckRunsKernels(GpuDevice& gpu, const FoundGpu& described);

// What is not installed and would make the GPUs faster, in sentences.
std::vector<std::string> GpuAdvice();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_DEVICE_GPU_LIST_H_
