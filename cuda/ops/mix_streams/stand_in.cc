// Stands for the Triton kernel in the emulation: computes the op from what the launcher passes. The
// kernel itself runs in cuda/triton/kernels/mix_streams_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/gpu_vendor.h"
#include "cuda/triton/emulated_images.h"

namespace pagemill::gpu {
namespace {

constexpr TritonKernel kKernel = {"mix_streams", "pppplllliiii"};
constexpr int32_t kBlock = 16;

template <typename T>
struct Operands {
  const T* x;
  const float* weights;
  const T* y;
  T* z;
  int64_t x_stride, weights_stride, y_stride, z_stride;
  int32_t width, streams, mixes, joined;

  explicit Operands(void* const* arguments)
      : x(Argument<const T*>(arguments, 0)),
        weights(Argument<const float*>(arguments, 1)),
        y(Argument<const T*>(arguments, 2)),
        z(Argument<T*>(arguments, 3)),
        x_stride(Argument<int64_t>(arguments, 4)),
        weights_stride(Argument<int64_t>(arguments, 5)),
        y_stride(Argument<int64_t>(arguments, 6)),
        z_stride(Argument<int64_t>(arguments, 7)),
        width(Argument<int32_t>(arguments, 8)),
        streams(Argument<int32_t>(arguments, 9)),
        mixes(Argument<int32_t>(arguments, 10)),
        joined(Argument<int32_t>(arguments, 11)) {}

  bool IsAligned() const {
    const auto fits = [](const void* data, int64_t stride) {
      return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 16 == 0;
    };
    return width % 16 == 0 && fits(x, x_stride) && fits(y, y_stride) && fits(z, z_stride);
  }

  void Mix(int64_t token, int64_t mix, int64_t column) const {
    const float* const of_mix = weights + token * weights_stride + mix * (streams + joined);
    double sum = 0;
    for (int64_t n = 0; n < streams; ++n) {
      sum += double{of_mix[n]} * ToFloat(x[token * x_stride + n * width + column]);
    }
    if (joined == 1) sum += double{of_mix[streams]} * ToFloat(y[token * y_stride + column]);
    z[token * z_stride + mix * width + column] = FromFloat<T>(static_cast<float>(sum));
  }
};

template <typename T, bool kAligned>
std::function<void()> StandIn(const emulation::LaunchOptions& shape, void* const* arguments) {
  const Operands<T> operands(arguments);
  EXPECT_TRUE(!kAligned || operands.IsAligned());
  const int64_t columns = int64_t{shape.grid.y} * kBlock;
  return [=, tokens = shape.grid.x] {
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t i = 0; i < operands.mixes * std::min<int64_t>(columns, operands.width); ++i) {
        operands.Mix(token, i % operands.mixes, i / operands.mixes);
      }
    }
  };
}

template <typename T, bool kAligned>
constexpr emulation::EmulatedCode kCode = {"mix_streams", StandIn<T, kAligned>};

const std::vector<TritonImage> kImages = {
      EmulatedImage(kKernel, "f32", kBlock, &kCode<float, false>),
      EmulatedImage(kKernel, "f32_aligned", kBlock, &kCode<float, true>),
      EmulatedImage(kKernel, "bf16", kBlock, &kCode<BFloat16, false>),
      EmulatedImage(kKernel, "bf16_aligned", kBlock, &kCode<BFloat16, true>),
      EmulatedImage(kKernel, "f16", kBlock, &kCode<Half, false>),
      EmulatedImage(kKernel, "f16_aligned", kBlock, &kCode<Half, true>),
};

// Before main().
const bool kSet = [] {
  SetEmulatedImages(kImages);
  return true;
}();

}  // namespace
}  // namespace pagemill::gpu
