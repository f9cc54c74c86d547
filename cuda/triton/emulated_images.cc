#include "cuda/triton/emulated_images.h"

namespace pagemill::gpu {
namespace {

std::span<const TritonImage> set_images;

}  // namespace

TritonImages AllTritonImages() { return {&set_images, 1}; }

void SetEmulatedImages(std::span<const TritonImage> images) { set_images = images; }

TritonImage EmulatedImage(const TritonKernel& kernel, std::string_view specialization,
                          int32_t block, const emulation::EmulatedCode* code) {
  return {.kernel = kernel.name,
          .specialization = specialization,
          .parameters = kernel.parameters,
          .compute_major = 9,
          .compute_minor = 0,
          .block = block,
          .threads = 128,
          .shared_bytes = 0,
          .code = {reinterpret_cast<const uint64_t*>(code), sizeof(*code) / sizeof(uint64_t)}};
}

}  // namespace pagemill::gpu
