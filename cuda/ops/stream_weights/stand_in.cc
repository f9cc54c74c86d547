// Stands for the Triton kernel in the emulation: computes the op from what the launcher passes. The
// kernel itself runs in cuda/triton/kernels/stream_weights_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cc/ops/stream_weights/weights_of_row.h"
#include "cuda/triton/emulated_images.h"

namespace pagemill::gpu {
namespace {

constexpr TritonKernel kKernel = {"stream_weights", "pppppllliiifi"};

// Tokens of a program, and the most streams.
template <int32_t kBlock, int32_t kStreams>
std::function<void()> StandIn(const emulation::LaunchOptions& shape, void* const* arguments) {
  const auto* const mixes = Argument<const float*>(arguments, 0);
  const ops::stream_weights::Row first = {.mixes = nullptr,
                                          .base = Argument<const float*>(arguments, 1),
                                          .scale = Argument<const float*>(arguments, 2),
                                          .before = Argument<float*>(arguments, 3),
                                          .after = Argument<float*>(arguments, 4),
                                          .streams = Argument<int32_t>(arguments, 9),
                                          .iterations = Argument<int32_t>(arguments, 10),
                                          .eps = Argument<float>(arguments, 11)};
  const auto mixes_stride = Argument<int64_t>(arguments, 5);
  const auto before_stride = Argument<int64_t>(arguments, 6);
  const auto after_stride = Argument<int64_t>(arguments, 7);
  const int64_t tokens = Argument<int32_t>(arguments, 8);
  const bool has_after = Argument<int32_t>(arguments, 12) == 1;
  EXPECT_LE(first.streams, kStreams);
  const int64_t covered = std::min<int64_t>(int64_t{shape.grid.x} * kBlock, tokens);
  return [=] {
    for (int64_t t = 0; t < covered; ++t) {
      ops::stream_weights::Row row = first;
      row.mixes = mixes + t * mixes_stride;
      row.before += t * before_stride;
      row.after = has_after ? row.after + t * after_stride : nullptr;
      ops::stream_weights::WeightsOfRow<double>(row).Run();
    }
  };
}

template <int32_t kBlock, int32_t kStreams>
constexpr emulation::EmulatedCode kCode = {"stream_weights", StandIn<kBlock, kStreams>};

const std::vector<TritonImage> kImages = {
      EmulatedImage(kKernel, "streams_4", 2, &kCode<2, 4>),
      EmulatedImage(kKernel, "streams_16", 1, &kCode<1, 16>),
};

// Before main().
const bool kSet = [] {
  SetEmulatedImages(kImages);
  return true;
}();

}  // namespace
}  // namespace pagemill::gpu
