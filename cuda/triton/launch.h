// File: cuda/triton/launch.h
// Launches kernels of Triton. What compiles them, and how to add one: docs/gpu.md.
//
//   constexpr TritonKernel kScaleRows = {"scale_rows", "ppli"};
//   ...
//   const TritonImage& image = ImageFor(stream, kScaleRows, "bf16");
//   LaunchTriton(stream, image, {.x = DivideUp(rows, image.block)}, x.data, y.data, stride, width);
//
// Arguments have the types of the kernel's parameters exactly. A launch without programs does
// nothing. An error is reported by the stream's next event.
#ifndef PAGEMILL_CUDA_TRITON_LAUNCH_H_
#define PAGEMILL_CUDA_TRITON_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/triton/image.h"

namespace pagemill::gpu {

// For `Kernel::supports`: whether the GPU has the kernel with this specialization.
bool HasImage(const device::Capabilities& caps, const TritonKernel& kernel,
              std::string_view specialization);

// The image for the stream's GPU, which HasImage().
const TritonImage& ImageFor(device::Stream& stream, const TritonKernel& kernel,
                            std::string_view specialization);

namespace internal {

template <typename T>
constexpr char LetterOf() {
  if constexpr (std::is_pointer_v<T>) return 'p';
  if constexpr (std::is_same_v<T, int32_t>) return 'i';
  if constexpr (std::is_same_v<T, int64_t>) return 'l';
  if constexpr (std::is_same_v<T, float>) return 'f';
  return '?';
}

// `arguments` has the address of each, and room for those that Triton adds.
inline constexpr size_t kAddedArguments = 2;
void LaunchImage(device::Stream& stream, const TritonImage& image, const GridSizes& programs,
                 std::span<void*> arguments);

}  // namespace internal

template <typename... Args>
void LaunchTriton(device::Stream& stream, const TritonImage& image, const GridSizes& programs,
                  Args... args) {
  static constexpr char kLetters[] = {internal::LetterOf<Args>()..., '\0'};
  PAGEMILL_CHECK(image.parameters == kLetters);
  void* arguments[sizeof...(Args) + internal::kAddedArguments] = {
      const_cast<void*>(static_cast<const void*>(&args))...};
  internal::LaunchImage(stream, image, programs, arguments);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_TRITON_LAUNCH_H_
