#include "sycl/device/sycl_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "sycl/device/onednn.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/device/testing/cpu_device.h"

namespace pagemill::sycl {
namespace {

struct AddOneParams {
  int32_t* x = nullptr;
  int32_t size = 0;
};

constexpr KernelFile kFiles[] = {{"add_one_params.h", R"(
struct AddOneParams {
  int* x = nullptr;
  int size = 0;
};
)"}};
constexpr KernelModule kModule = {.name = "a test", .source = R"(
#include <sycl/sycl.hpp>
#include "add_one_params.h"
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void add_one(AddOneParams p) {
  const auto i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_id(0);
  if (i < p.size) p.x[i] += 1;
}
)",
                                  .files = kFiles};
constexpr KernelModule kWrong = {.name = "a wrong test", .source = "int x = y;", .files = {}};

class SyclDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = *device().Allocate(sizeof(values_), "a test");
    stream_ = *device().NewStream();
    done_ = device().NewEvent();
    std::iota(values_.begin(), values_.end(), 0);
  }
  static SyclDevice& device() {
    // Never closed: the runtime may be gone when static objects are destroyed.
    static SyclDevice* const device = testing::OpenCpuDevice().release();
    return *device;
  }
  void Send() {
    stream_->CopyToDevice(memory_.data(), std::as_bytes(std::span(values_)));
  }
  void AddOne() {
    LaunchKernel(*stream_, {.module = kModule, .kernel = "add_one", .groups = 4, .group_size = 32},
                 AddOneParams{.x = reinterpret_cast<int32_t*>(memory_.data()),
                              .size = static_cast<int32_t>(values_.size())});
  }
  // The values on the device.
  StatusOr<std::vector<int32_t>> Fetch() {
    std::vector<int32_t> values(values_.size());
    stream_->CopyToHost(std::as_writable_bytes(std::span(values)), memory_.data());
    stream_->Record(*done_);
    PAGEMILL_RETURN_IF_ERROR(done_->Synchronize());
    return values;
  }
  std::vector<int32_t> ValuesPlus(int32_t number) const {
    std::vector<int32_t> values(values_.begin(), values_.end());
    for (int32_t& value : values) value += number;
    return values;
  }

  std::array<int32_t, 100> values_;
  device::DeviceMemory memory_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> done_;
};

TEST_F(SyclDeviceTest, WorkIsDoneInOrder) {
  EXPECT_TRUE(done_->Synchronize().ok());  // never recorded
  Send();
  for (int i = 0; i < 50; ++i) AddOne();
  const auto values = Fetch();
  ASSERT_TRUE(values.ok()) << values.status().ToString();
  EXPECT_EQ(*values, ValuesPlus(50));
}

TEST_F(SyclDeviceTest, AGraphIsDoneWhenReplayed) {
  Send();
  stream_->BeginCapture();
  AddOne();
  AddOne();
  const auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(*Fetch(), ValuesPlus(0));
  for (int i = 0; i < 3; ++i) stream_->Replay(**graph);
  EXPECT_EQ(*Fetch(), ValuesPlus(6));
}

// All use the same kernel, with memory of their own.
TEST_F(SyclDeviceTest, StreamsOfSeveralThreadsRecordAndReplayAtOnce) {
  constexpr int kRounds = 100, kLaunches = 10;
  const auto run = [](int32_t first) {
    const device::DeviceMemory memory = *device().Allocate(sizeof(int32_t), "a test");
    const auto stream = *device().NewStream();
    const auto done = device().NewEvent();
    const auto add_one = [&] {
      LaunchKernel(*stream, {.module = kModule, .kernel = "add_one", .groups = 1, .group_size = 32},
                   AddOneParams{.x = reinterpret_cast<int32_t*>(memory.data()), .size = 1});
    };
    for (int round = 0; round < kRounds; ++round) {
      int32_t value = first;
      stream->CopyToDevice(memory.data(), std::as_bytes(std::span(&value, 1)));
      add_one();
      stream->BeginCapture();
      for (int i = 0; i < kLaunches; ++i) add_one();
      const auto graph = stream->EndCapture();
      ASSERT_TRUE(graph.ok()) << graph.status().ToString();
      for (int i = 0; i < 2; ++i) stream->Replay(**graph);
      stream->CopyToHost(std::as_writable_bytes(std::span(&value, 1)), memory.data());
      stream->Record(*done);
      ASSERT_TRUE(done->Synchronize().ok());
      ASSERT_EQ(value, first + 1 + 2 * kLaunches) << "round " << round;
    }
  };
  std::thread other(run, 1000);
  run(0);
  other.join();
}

TEST_F(SyclDeviceTest, AnErrorIsReportedByAllLaterEvents) {
  const AddOneParams params;
  LaunchKernel(*stream_, {.module = kWrong, .kernel = "x", .groups = 1}, params);
  AddOne();
  for (int i = 0; i < 2; ++i) {
    const Status status = Fetch().status();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(std::string(status.message()).find("use of undeclared identifier"),
              std::string::npos)
        << status.ToString();
  }
  stream_->BeginCapture();
  EXPECT_EQ(stream_->EndCapture().status().code(), StatusCode::kInternal);
}

TEST_F(SyclDeviceTest, AnUnknownKernelIsAnError) {
  LaunchKernel(*stream_, {.module = kModule, .kernel = "absent", .groups = 1}, AddOneParams{});
  EXPECT_EQ(Fetch().status().code(), StatusCode::kInternal);
}

TEST_F(SyclDeviceTest, TooMuchMemoryIsRefused) {
  const auto memory = device().Allocate(int64_t{1} << 60, "dreams");
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(memory.status().message()).find("of dreams"), std::string::npos);
}

TEST_F(SyclDeviceTest, CopiesHostMemoryOfItsOwn) {
  const device::HostMemory host = *device().AllocateHost(sizeof(values_), "a test");
  std::memcpy(host.data(), values_.data(), sizeof(values_));
  stream_->CopyToDevice(memory_.data(), host.bytes());
  AddOne();
  EXPECT_EQ(*Fetch(), ValuesPlus(1));
}

// Matrices of floats in memory of the device, next to each other and to the workspace.
class SyclProductTest : public SyclDeviceTest {
 protected:
  static constexpr int64_t kSize = 64, kMatrixBytes = kSize * kSize * 4;

  void SetUp() override {
    SyclDeviceTest::SetUp();
    matrices_ = *device().Allocate(3 * kMatrixBytes + kOnednnWorkspaceBytes, "a product");
    stream_->CopyToDevice(matrices_.data(), std::as_bytes(std::span(ones_)));
  }
  bool Multiply() {
    return static_cast<SyclStream&>(*stream_).Multiply(
        {.x = matrices_.data(),
         .w = matrices_.data() + kMatrixBytes,
         .y = matrices_.data() + 2 * kMatrixBytes,
         .rows = kSize,
         .outputs = kSize,
         .columns = kSize,
         .x_stride = kSize,
         .w_stride = kSize,
         .y_stride = kSize,
         .workspace = matrices_.data() + 3 * kMatrixBytes});
  }
  // The first element of y.
  float FetchProduct() {
    float y = 0;
    stream_->CopyToHost(std::as_writable_bytes(std::span(&y, 1)),
                        matrices_.data() + 2 * kMatrixBytes);
    stream_->Record(*done_);
    EXPECT_TRUE(done_->Synchronize().ok());
    return y;
  }

  const std::vector<float> ones_ = std::vector<float>(3 * kSize * kSize, 1.0f);
  device::DeviceMemory matrices_;
};

TEST_F(SyclProductTest, IsMultipliedInOrder) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Multiply());
  EXPECT_EQ(FetchProduct(), 64);
}

// On CPUs the library's work cannot be replayed.
TEST_F(SyclProductTest, IsNotRecordedOnCpus) {
  stream_->BeginCapture();
  EXPECT_FALSE(Multiply());
  AddOne();
  ASSERT_TRUE(stream_->EndCapture().ok());
  EXPECT_EQ(FetchProduct(), 1);
  EXPECT_TRUE(Multiply());
  EXPECT_EQ(FetchProduct(), 64);
}

TEST_F(SyclDeviceTest, CountsItsMemory) {
  EXPECT_GT(device().CountMemory().total, 0);
  EXPECT_LE(device().CountMemory().free, device().CountMemory().total);
}

TEST_F(SyclDeviceTest, NamesItself) {
  EXPECT_EQ(device().capabilities().kind, device::DeviceKind::kGpu);
  EXPECT_FALSE(device().capabilities().gpu.name.empty());
  EXPECT_GT(device().capabilities().gpu.memory_bytes, 0);
}

}  // namespace
}  // namespace pagemill::sycl
