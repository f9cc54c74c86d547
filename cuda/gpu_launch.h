// File: cuda/gpu_launch.h
// Launches a kernel of gpu_vendor.h on a stream of cuda/device, on a GPU and in the emulation.
//
//   Launch(*context.stream, {.blocks = {rows}, .threads = {256}}, ScaleRow<float>, x, size, 2.0f);
//
// Parameters of kernels are numbers, pointers to device memory, and structs of both; the emulation
// checks pointers, and the member `data` of structs (Rows of gpu_rows.h have one), or those that
// their ForData(visit) visits. A launch without blocks does nothing. An error is reported by the
// stream's next event.
#ifndef PAGEMILL_CUDA_GPU_LAUNCH_H_
#define PAGEMILL_CUDA_GPU_LAUNCH_H_

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/device/stream.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_runtime.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct GridSizes {
  uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  GridSizes blocks = {};
  GridSizes threads = {};
  int64_t shared_bytes = 0;  // dynamic shared memory of a block
  // Blocks may begin before the kernel in front of this one is done: every thread calls
  // AwaitInputs(), and before that reads only what no work of the stream writes, such as weights.
  bool early = false;
};

#if defined(__CUDACC__) || defined(__HIP__)

template <typename... Params, typename... Args>
void Launch(device::Stream& stream, const LaunchShape& shape, void (*kernel)(Params...),
            Args... args) {
  constexpr int64_t kWithoutAsking = 48 << 10;
  const auto [x, y, z] = shape.blocks;
  if (x == 0 || y == 0 || z == 0) return;
  GpuStream& gpu = static_cast<GpuStream&>(stream);
  gpu.MakeCurrent();
  if (shape.shared_bytes > kWithoutAsking) {
    gpu.Check(PAGEMILL_GPU(FuncSetAttribute)(reinterpret_cast<const void*>(kernel),
                                             PAGEMILL_GPU(FuncAttributeMaxDynamicSharedMemorySize),
                                             static_cast<int>(shape.shared_bytes)));
  }
  const dim3 blocks(x, y, z), threads(shape.threads.x, shape.threads.y, shape.threads.z);
#if defined(__CUDACC__)
  if (shape.early && gpu.capabilities().compute_major >= 9) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = gpu.native();
    config.attrs = &attribute;
    config.numAttrs = 1;
    return gpu.Check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
  }
#endif
  kernel<<<blocks, threads, static_cast<size_t>(shape.shared_bytes), gpu.native()>>>(
      static_cast<Params>(args)...);
  gpu.Check(PAGEMILL_GPU(GetLastError)());
}

#else

namespace emulation {

template <typename Param>
void AddPointer(const Param& param, std::vector<const void*>* pointers) {
  if constexpr (std::is_pointer_v<Param>) {
    pointers->push_back(param);
  } else if constexpr (requires { param.ForData([](const void*) {}); }) {
    param.ForData([&](const void* data) { pointers->push_back(data); });
  } else if constexpr (requires { param.data; }) {
    pointers->push_back(param.data);
  }
}

}  // namespace emulation

template <typename... Params, typename... Args>
void Launch(device::Stream& stream, const LaunchShape& shape, void (*kernel)(Params...),
            Args... args) {
  const auto [x, y, z] = shape.blocks;
  if (x == 0 || y == 0 || z == 0) return;
  const std::tuple<Params...> params(static_cast<Params>(args)...);
  std::vector<const void*> pointers;
  std::apply([&](const auto&... each) { (emulation::AddPointer(each, &pointers), ...); }, params);
  emulation::EnqueueLaunch(static_cast<GpuStream&>(stream).native(),
                           {.grid = {x, y, z},
                            .block = {shape.threads.x, shape.threads.y, shape.threads.z},
                            .shared_bytes = shape.shared_bytes,
                            .early = shape.early},
                           std::move(pointers), [kernel, params] { std::apply(kernel, params); });
}

#endif

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_LAUNCH_H_
