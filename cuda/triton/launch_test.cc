#include "cuda/triton/launch.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device/gpu_device.h"
#include "cuda/triton/emulated_images.h"

namespace pagemill::gpu {
namespace {

constexpr TritonKernel kFill = {"fill", "plif"};

// What the last launch was called with.
struct Recorded {
  emulation::LaunchOptions shape;
  float* to = nullptr;
  int64_t first = 0;
  int32_t count = 0;
  float value = 0;
  const void* added[2] = {};
};
Recorded recorded;

std::function<void()> Fill(const emulation::LaunchOptions& shape, void* const* arguments) {
  recorded = {.shape = shape,
              .to = Argument<float*>(arguments, 0),
              .first = Argument<int64_t>(arguments, 1),
              .count = Argument<int32_t>(arguments, 2),
              .value = Argument<float>(arguments, 3),
              .added = {Argument<void*>(arguments, 4), Argument<void*>(arguments, 5)}};
  return [call = recorded] {
    for (int64_t i = 0; i < call.count; ++i) call.to[call.first + i] = call.value;
  };
}

constexpr emulation::EmulatedCode kCode = {"fill", Fill};
constexpr emulation::EmulatedCode kOtherCode = {"other", Fill};

class TritonLaunch : public ::testing::Test {
 protected:
  void Set(const emulation::EmulatedCode* code) {
    images_ = {EmulatedImage(kFill, "f32", /*block=*/4, code)};
    images_[0].shared_bytes = 96;
    SetEmulatedImages(images_);
  }
  void TearDown() override { SetEmulatedImages({}); }

  Status Finish() {
    const std::unique_ptr<device::Event> done = gpu_->NewEvent();
    stream_->Record(*done);
    return done->Synchronize();
  }

  std::vector<TritonImage> images_;
  std::unique_ptr<GpuDevice> gpu_ = *GpuDevice::Open(0);
  std::unique_ptr<device::Stream> stream_ = *gpu_->NewStream();
  device::DeviceMemory memory_ = *gpu_->Allocate(64, "a test");
};

TEST_F(TritonLaunch, PassesArgumentsAndTwoNullPointers) {
  Set(&kCode);
  const TritonImage& image = ImageFor(*stream_, kFill, "f32");
  EXPECT_EQ(image.block, 4);
  LaunchTriton(*stream_, image, {.x = 3, .y = 2}, memory_.data(), int64_t{2}, 5, 1.5f);
  float values[7] = {};
  stream_->CopyToHost({reinterpret_cast<std::byte*>(values), sizeof(values)}, memory_.data());
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(static_cast<void*>(recorded.to), memory_.data());
  EXPECT_EQ(recorded.shape.grid.x, 3u);
  EXPECT_EQ(recorded.shape.grid.y, 2u);
  EXPECT_EQ(recorded.shape.block.x, 128u);
  EXPECT_EQ(recorded.shape.shared_bytes, 96);
  EXPECT_EQ(recorded.added[0], nullptr);
  EXPECT_EQ(recorded.added[1], nullptr);
  for (int i = 2; i < 7; ++i) EXPECT_EQ(values[i], 1.5f);
}

TEST_F(TritonLaunch, WithoutProgramsDoesNothing) {
  Set(&kCode);
  recorded.count = -1;
  LaunchTriton(*stream_, ImageFor(*stream_, kFill, "f32"), {.x = 0}, memory_.data(), int64_t{0}, 1,
               0.0f);
  EXPECT_TRUE(Finish().ok());
  EXPECT_EQ(recorded.count, -1);
}

TEST_F(TritonLaunch, AKernelThatIsNotInItsCodeIsAnErrorOfTheStream) {
  Set(&kOtherCode);
  LaunchTriton(*stream_, ImageFor(*stream_, kFill, "f32"), {.x = 1}, memory_.data(), int64_t{0}, 1,
               0.0f);
  const Status status = Finish();
  EXPECT_NE(status.ToString().find("there is no kernel fill"), std::string::npos);
}

TEST_F(TritonLaunch, AnImageIsForItsGpus) {
  const device::Capabilities caps = {.kind = device::DeviceKind::kGpu,
                                     .gpu = gpu_->capabilities()};
  EXPECT_FALSE(HasImage(caps, kFill, "f32"));
  Set(&kCode);
  EXPECT_TRUE(HasImage(caps, kFill, "f32"));
  EXPECT_FALSE(HasImage(caps, kFill, "bf16"));
  EXPECT_FALSE(HasImage({}, kFill, "f32"));
  const auto runs = [&](int32_t major, int32_t minor) {
    return FindTritonImage(kFill, "f32", major, minor) != nullptr;
  };
  EXPECT_TRUE(runs(9, 0));
  EXPECT_FALSE(runs(8, 0));
  EXPECT_FALSE(runs(10, 0));
  images_[0].compute_major = 8;
  EXPECT_TRUE(runs(8, 0));
  EXPECT_TRUE(runs(8, 9));
  EXPECT_FALSE(runs(9, 0));
  images_[0].compute_major = 12;
  EXPECT_TRUE(runs(12, 0));
  EXPECT_FALSE(runs(12, 1));
}

}  // namespace
}  // namespace pagemill::gpu
