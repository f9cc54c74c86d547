#include "cuda/triton/image.h"

#include "cc/base/status.h"

namespace pagemill::gpu {
namespace {

// Code for sm_80 runs on all GPUs of generation 8. Later ones are compiled with the instructions of
// one GPU (sm_90a), and so are AMD's.
bool Runs(const TritonImage& image, int32_t major, int32_t minor) {
  if (image.compute_major != major) return false;
  return major == 8 ? image.compute_minor <= minor : image.compute_minor == minor;
}

}  // namespace

const TritonImage* FindTritonImage(const TritonKernel& kernel, std::string_view specialization,
                                   int32_t compute_major, int32_t compute_minor) {
  for (const std::span<const TritonImage> images : AllTritonImages()) {
    for (const TritonImage& image : images) {
      if (image.kernel != kernel.name || image.specialization != specialization) continue;
      if (!Runs(image, compute_major, compute_minor)) continue;
      PAGEMILL_CHECK(image.parameters == kernel.parameters);
      return &image;
    }
  }
  return nullptr;
}

}  // namespace pagemill::gpu
