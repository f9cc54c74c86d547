// File: cuda/triton/image.h
// Machine code of Triton kernels (cuda/triton/kernels), compiled when this tree is built: an
// image for each kernel, specialization and architecture. In the emulation there are none, unless a
// test has set some.
//
//   const TritonImage* image = FindTritonImage(kMixStreams, "bf16", /*major=*/9, /*minor=*/0);
#ifndef PAGEMILL_CUDA_TRITON_IMAGE_H_
#define PAGEMILL_CUDA_TRITON_IMAGE_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace pagemill::gpu {

// A kernel as its launcher knows it.
struct TritonKernel {
  std::string_view name;
  // The types of its arguments, in order: p a pointer, i int32_t, l int64_t, f float.
  std::string_view parameters;
};

struct TritonImage {
  std::string_view kernel;
  std::string_view specialization;
  std::string_view parameters;
  // The GPUs that run it: 9 and 0 for sm_90.
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t block = 0;  // elements of a program, by which grids are divided
  int32_t threads = 0;
  int32_t shared_bytes = 0;
  std::span<const uint64_t> code;
};

// The images of a kernel for an architecture, in a table of all.
using TritonImages = std::span<const std::span<const TritonImage>>;

TritonImages AllTritonImages();

// Null if the kernel was not compiled with this specialization for this GPU.
const TritonImage* FindTritonImage(const TritonKernel& kernel, std::string_view specialization,
                                   int32_t compute_major, int32_t compute_minor);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_TRITON_IMAGE_H_
