// File: cuda/gpu_runtime.h
// The runtime functions that vendors' APIs share, by one name: PAGEMILL_GPU(Malloc) is cudaMalloc
// for nvcc, hipMalloc for clang's HIP, and the emulation's (cuda/emulation/runtime.h) otherwise.
//
//   PAGEMILL_GPU(Stream_t) stream;
//   if (PAGEMILL_GPU(StreamCreate)(&stream) != PAGEMILL_GPU(Success)) ...
#ifndef PAGEMILL_CUDA_GPU_RUNTIME_H_
#define PAGEMILL_CUDA_GPU_RUNTIME_H_

#include <cstddef>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define PAGEMILL_GPU(name) cuda##name
#elif defined(__HIP__)
#include <hip/hip_runtime.h>
#define PAGEMILL_GPU(name) hip##name
using hipDeviceProp = hipDeviceProp_t;
#else
#include "cuda/emulation/runtime.h"
#define PAGEMILL_GPU(name) emulated##name
#endif

namespace pagemill::gpu {

// True for AMD's, which have other instructions for products of matrices.
inline bool GpusAreOfAmd() {
#if defined(__CUDACC__)
  return false;
#elif defined(__HIP__)
  return true;
#else
  return emulation::EmulatedGpu::is_of_amd();
#endif
}

// Memory in which words of system scope (gpu_vendor.h) work while kernels of several GPUs run:
// all of NVIDIA's, but none that AMD's caches keep.
inline PAGEMILL_GPU(Error_t) MallocForPeers(void** address, size_t bytes) {
#if defined(__HIP__)
  return hipExtMallocWithFlags(address, bytes, hipDeviceMallocUncached);
#else
  return PAGEMILL_GPU(Malloc)(address, bytes);
#endif
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_RUNTIME_H_
