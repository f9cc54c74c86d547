#include "cuda/device/gpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_runtime.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {
namespace {

PAGEMILL_KERNEL Multiply(float* x, float factor) { x[ThreadIndex().x] *= factor; }

PAGEMILL_KERNEL WaitForMissingLane(float* x) {
  if (Lane() == 0) return;
  SyncWarp(AllLanes());
  x[0] = 1;
}

using Numbers = std::array<float, 64>;

struct Fixture {
  Status Finish() {
    stream->Record(*event);
    return event->Synchronize();
  }
  float* NewNumbers() {
    memory = *gpu->Allocate(sizeof(Numbers), "a test");
    return reinterpret_cast<float*>(memory.data());
  }
  void Send(const Numbers& numbers) {
    stream->CopyToDevice(memory.data(), std::as_bytes(std::span(numbers)));
  }
  void Fetch(Numbers& numbers) {
    stream->CopyToHost(std::as_writable_bytes(std::span(numbers)), memory.data());
  }

  std::unique_ptr<GpuDevice> gpu = *GpuDevice::Open(0);
  device::DeviceMemory memory;
  std::unique_ptr<device::Stream> stream = *gpu->NewStream();
  std::unique_ptr<device::Event> event = gpu->NewEvent();
};

constexpr LaunchShape kOneBlock = {.threads = {64}};

TEST(GpuDevice, TellsItsCapabilities) {
  const auto gpu = GpuDevice::Open(0);
  ASSERT_TRUE(gpu.ok());
  EXPECT_GT((*gpu)->capabilities().memory_bytes, 0);
  EXPECT_FALSE((*gpu)->capabilities().name.empty());
  EXPECT_EQ(GpuDevice::Open(100).status().code(), StatusCode::kFailedPrecondition);
}

TEST(GpuDevice, RefusesMemoryThatItDoesNotHave) {
  Fixture f;
  const auto memory = f.gpu->Allocate(int64_t{1} << 50, "weights");
  EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(memory.status().message().find("bytes of weights do not fit"), std::string::npos);
  EXPECT_TRUE(f.gpu->Allocate(1 << 20, "less").ok());
}

TEST(GpuDevice, CountsItsMemory) {
  Fixture f;
  const device::MemoryBytes before = f.gpu->CountMemory();
  EXPECT_GT(before.total, 0);
  EXPECT_LE(before.free, before.total);
  const auto memory = f.gpu->Allocate(1 << 22, "a test");
  EXPECT_LE(f.gpu->CountMemory().free, before.free - (1 << 22));
}

TEST(GpuDevice, CopiesHostMemoryOfItsOwn) {
  Fixture f;
  f.NewNumbers();
  const device::HostMemory in = *f.gpu->AllocateHost(sizeof(Numbers), "a test");
  const device::HostMemory out = *f.gpu->AllocateHost(sizeof(Numbers), "a test");
  EXPECT_TRUE(f.gpu->AllocateHost(0, "nothing")->bytes().empty());
  std::fill(in.bytes().begin(), in.bytes().end(), std::byte{7});
  f.stream->CopyToDevice(f.memory.data(), in.bytes());
  f.stream->CopyToHost(out.bytes(), f.memory.data());
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out.bytes().back(), std::byte{7});
}

TEST(GpuDevice, KernelsReadHostMemoryThatIsMapped) {
  Fixture f;
  const device::HostMemory mapped = *f.gpu->AllocateMapped(sizeof(Numbers), "a test");
  EXPECT_TRUE(f.gpu->AllocateMapped(0, "nothing")->bytes().empty());
  float* const x = reinterpret_cast<float*>(mapped.data());
  std::fill_n(x, 64, 3.0f);
  Launch(*f.stream, kOneBlock, Multiply, x, 2.0f);
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(x[63], 6);
}

TEST(GpuDevice, KernelsRunInTheOrderOfTheStream) {
  Fixture f;
  float* const x = f.NewNumbers();
  Numbers in, out = {};
  in.fill(3);
  f.Send(in);
  Launch(*f.stream, kOneBlock, Multiply, x, 2.0f);
  Launch(*f.stream, kOneBlock, Multiply, x, 5.0f);
  Launch(*f.stream, {.blocks = {0}}, Multiply, x, 0.0f);
  f.Fetch(out);
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out[63], 30);
}

TEST(GpuDevice, GraphsReplayKernels) {
  Fixture f;
  float* const x = f.NewNumbers();
  Numbers in, out = {};
  in.fill(1);
  f.Send(in);
  f.stream->BeginCapture();
  Launch(*f.stream, kOneBlock, Multiply, x, 2.0f);
  Launch(*f.stream, kOneBlock, Multiply, x, 3.0f);
  const auto graph = f.stream->EndCapture();
  ASSERT_TRUE(graph.ok());
  for (int i = 0; i < 2; ++i) f.stream->Replay(**graph);
  f.Fetch(out);
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out[0], 36);
}

#if !defined(__CUDACC__)

// On a GPU these would end the process or pass unnoticed.
TEST(GpuDevice, ReportsAKernelThatBreaksARule) {
  Fixture f;
  float* const x = f.NewNumbers();
  Launch(*f.stream, kOneBlock, WaitForMissingLane, x);
  const Status status = f.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("gpu_device_test.cc:"), std::string::npos) << status.message();
  EXPECT_FALSE(f.Finish().ok()) << "errors stay";
}

TEST(GpuDevice, ReportsPointersToTheHost) {
  Fixture f;
  float x[64] = {};
  Launch(*f.stream, kOneBlock, Multiply, x, 2.0f);
  EXPECT_EQ(f.Finish().code(), StatusCode::kInternal);
}

TEST(GpuDevice, CountsCopiesThatWouldWait) {
  Fixture f;
  f.NewNumbers();
  const device::HostMemory own = *f.gpu->AllocateHost(sizeof(Numbers), "a test");
  const auto num_waiting = [] { return emulation::EmulatedGpu::memory().num_pageable_copies(); };
  const int64_t before = num_waiting();
  f.stream->CopyToDevice(f.memory.data(), own.bytes());
  EXPECT_EQ(num_waiting(), before);
  const Numbers numbers = {};
  f.Send(numbers);
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(num_waiting(), before + 1);
}

TEST(GpuDevice, ReportsAnAddressThatChangedAfterItsCapture) {
  Fixture f;
  float* const x = f.NewNumbers();
  f.stream->BeginCapture();
  Launch(*f.stream, kOneBlock, Multiply, x, 2.0f);
  const auto graph = f.stream->EndCapture();
  f.NewNumbers();
  f.stream->Replay(**graph);
  EXPECT_EQ(f.Finish().code(), StatusCode::kInternal);
}

#endif

}  // namespace
}  // namespace pagemill::gpu
