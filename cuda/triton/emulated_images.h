// File: cuda/triton/emulated_images.h
// Images of the emulation: none, unless a test sets some, whose code is an EmulatedCode
// (cuda/emulation/runtime.h) that reads the arguments and computes what the kernel would. So what
// launchers pass is tested without a GPU. Test code only.
//
//   constexpr emulation::EmulatedCode kCode = {"scale_rows", StandIn};
//   const TritonImage image = EmulatedImage(kScaleRows, "bf16", /*block=*/64, &kCode);
//   SetEmulatedImages({&image, 1});
#ifndef PAGEMILL_CUDA_TRITON_EMULATED_IMAGES_H_
#define PAGEMILL_CUDA_TRITON_EMULATED_IMAGES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cuda/emulation/runtime.h"
#include "cuda/triton/image.h"

namespace pagemill::gpu {

// The argument of this index, as a stand-in for a kernel receives them.
template <typename T>
T Argument(void* const* arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

TritonImage EmulatedImage(const TritonKernel& kernel, std::string_view specialization,
                          int32_t block, const emulation::EmulatedCode* code);

// `images` stay where they are until they are replaced. Not while a stream is used.
void SetEmulatedImages(std::span<const TritonImage> images);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_TRITON_EMULATED_IMAGES_H_
