#include "cuda/triton/launch.h"

#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {

bool HasImage(const device::Capabilities& caps, const TritonKernel& kernel,
              std::string_view specialization) {
  return caps.kind == device::DeviceKind::kGpu &&
         FindTritonImage(kernel, specialization, caps.gpu.compute_major, caps.gpu.compute_minor) !=
             nullptr;
}

const TritonImage& ImageFor(device::Stream& stream, const TritonKernel& kernel,
                            std::string_view specialization) {
  const device::GpuCapabilities& gpu = static_cast<GpuStream&>(stream).capabilities();
  const TritonImage* const image =
      FindTritonImage(kernel, specialization, gpu.compute_major, gpu.compute_minor);
  PAGEMILL_CHECK(image != nullptr);
  return *image;
}

namespace internal {

void LaunchImage(device::Stream& stream, const TritonImage& image, const GridSizes& programs,
                 std::span<void*> arguments) {
  if (programs.x == 0 || programs.y == 0 || programs.z == 0) return;
  GpuStream& gpu = static_cast<GpuStream&>(stream);
  gpu.MakeCurrent();
  const auto kernel = gpu.LoadKernel(image.code.data(), image.kernel.data());
  if (kernel == nullptr) return;  // the stream knows the error
  // Addresses of memory for all programs and for a profiler, of which no kernel has any.
  void* none = nullptr;
  for (void*& argument : arguments.last(kAddedArguments)) argument = &none;
  gpu.Check(PAGEMILL_GPU(LaunchKernel)(
      reinterpret_cast<const void*>(kernel), {programs.x, programs.y, programs.z},
      {static_cast<uint32_t>(image.threads), 1, 1}, arguments.data(),
      static_cast<size_t>(image.shared_bytes), gpu.native()));
}

}  // namespace internal

}  // namespace pagemill::gpu
