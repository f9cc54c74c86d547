#include "cc/device/testing/test_device.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace pagemill::device::testing {
namespace {

template <size_t N>
std::span<const std::byte> Bytes(const std::array<int32_t, N>& values) {
  return std::as_bytes(std::span(values));
}
template <size_t N>
std::span<std::byte> Writable(std::array<int32_t, N>& values) {
  return std::as_writable_bytes(std::span(values));
}

struct Fixture {
  DeviceMemory NewMemory(int64_t bytes) { return *device.Allocate(bytes, "a test"); }
  Status Finish() {
    stream->Record(*event);
    return event->Synchronize();
  }
  TestDevice device;
  std::unique_ptr<Stream> stream = *device.NewStream();
  std::unique_ptr<Event> event = device.NewEvent();
};

TEST(TestDevice, CopiesAreDoneInOrderAndLater) {
  Fixture f;
  DeviceMemory x = f.NewMemory(12);
  std::array<int32_t, 3> in = {1, 2, 3}, out = {}, second = {7, 8, 9};
  f.device.Hold();
  f.stream->CopyToDevice(x.data(), Bytes(in));
  f.stream->CopyToHost(Writable(out), x.data());
  f.stream->CopyToDevice(x.data(), Bytes(second));
  EXPECT_EQ(out, (std::array<int32_t, 3>{}));
  f.device.Release();
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out, in);
  f.stream->CopyToHost(Writable(out), x.data());
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out, second);
}

TEST(TestDevice, NewMemoryIsPoisoned) {
  Fixture f;
  DeviceMemory x = f.NewMemory(4);
  std::array<int32_t, 1> out = {};
  f.stream->CopyToHost(Writable(out), x.data());
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out[0], -1);
}

TEST(TestDeviceDeathTest, HostCannotReadItsMemory) {
  Fixture f;
  DeviceMemory x = f.NewMemory(64);
  EXPECT_DEATH(
      {
        volatile const std::byte* byte = x.data();
        [[maybe_unused]] const std::byte read = *byte;
      },
      "");
}

TEST(TestDevice, WorkAccessesMemoryByItsAddress) {
  Fixture f;
  DeviceMemory x = f.NewMemory(12);
  int32_t* const values = reinterpret_cast<int32_t*>(x.data());
  static_cast<TestStream&>(*f.stream).Enqueue([=](TestWorker& worker) {
    EXPECT_EQ(worker.Find(values, 12), reinterpret_cast<std::byte*>(values));
    EXPECT_EQ(worker.Find(values, 13), nullptr);
    for (int32_t i = 0; i < 3; ++i) values[i] = i;
    return OkStatus();
  });
  std::array<int32_t, 3> out = {};
  f.stream->CopyToHost(Writable(out), x.data());
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out, (std::array<int32_t, 3>{0, 1, 2}));
}

TEST(TestDevice, AddressesBeyondAnAllocationAreNone) {
  Fixture f;
  DeviceMemory x = f.NewMemory(8);
  DeviceMemory y = f.NewMemory(8);
  std::array<int32_t, 3> out = {};
  f.stream->CopyToHost(Writable(out), x.data());
  EXPECT_EQ(f.Finish().code(), StatusCode::kInternal);
  EXPECT_EQ(f.Finish().code(), StatusCode::kInternal) << "errors stay";
}

TEST(TestDevice, CopiesOfOtherHostMemoryAreCounted) {
  Fixture f;
  DeviceMemory x = f.NewMemory(64);
  const HostMemory own = *f.device.AllocateHost(64, "a test");
  f.stream->CopyToDevice(x.data(), own.bytes().subspan(16, 16));
  f.stream->CopyToHost(own.bytes(), x.data());
  EXPECT_EQ(f.device.num_pageable_copies(), 0);
  std::array<int32_t, 1> other = {};
  f.stream->CopyToDevice(x.data(), Bytes(other));
  f.stream->CopyToHost(Writable(other), x.data());
  EXPECT_EQ(f.device.num_pageable_copies(), 2);
  ASSERT_TRUE(f.Finish().ok());
}

TEST(TestDevice, KernelsFindHostMemoryThatIsMapped) {
  Fixture f;
  const HostMemory host = *f.device.AllocateHost(64, "a test");
  const HostMemory mapped = *f.device.AllocateMapped(64, "a test");
  EXPECT_TRUE(f.device.AllocateMapped(0, "nothing")->bytes().empty());
  static_cast<TestStream&>(*f.stream).Enqueue([&](TestWorker& worker) {
    EXPECT_EQ(worker.Find(mapped.data() + 16, 48), mapped.data() + 16);
    EXPECT_EQ(worker.Find(mapped.data() + 16, 49), nullptr);
    EXPECT_EQ(worker.Find(host.data(), 64), nullptr);
    return OkStatus();
  });
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(f.device.most_host_bytes(), 128);
}

TEST(TestDevice, HasAsMuchMemoryAsItIsMadeWith) {
  TestDevice device(1000);
  const DeviceMemory half = *device.Allocate(500, "a half");
  EXPECT_EQ(device.CountMemory().free, 500);
  EXPECT_EQ(device.Allocate(501, "more").status().message(),
            "the test device has no memory left for 501 bytes of more");
  EXPECT_TRUE(device.Allocate(500, "the rest").ok());
  const HostMemory host = *device.AllocateHost(2000, "the host");
  EXPECT_EQ(device.CountMemory().free, 500) << "of the device, not of the host";
  EXPECT_EQ(device.most_host_bytes(), 2000);
}

TEST(TestDevice, GraphsReplayTheAddressesOfTheirCapture) {
  Fixture f;
  DeviceMemory x = f.NewMemory(4);
  std::array<int32_t, 1> in = {5}, out = {};
  f.stream->BeginCapture();
  f.stream->CopyToDevice(x.data(), Bytes(in));
  f.stream->CopyToHost(Writable(out), x.data());
  const std::unique_ptr<Graph> graph = *f.stream->EndCapture();
  ASSERT_TRUE(f.Finish().ok());
  EXPECT_EQ(out[0], 0) << "captured work is not done";
  for (int32_t value : {6, 7}) {
    in[0] = value;
    f.stream->Replay(*graph);
    ASSERT_TRUE(f.Finish().ok());
    EXPECT_EQ(out[0], value);
  }
  EXPECT_EQ(f.device.num_replays(), 2);
  x = f.NewMemory(4);  // moved: the graph has the address of memory that is freed
  f.stream->Replay(*graph);
  EXPECT_EQ(f.Finish().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace pagemill::device::testing
