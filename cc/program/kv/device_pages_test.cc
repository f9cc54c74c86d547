#include "cc/program/kv/device_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;
using step::BlockId;
using step::GroupId;
using testing::BatchBuilder;
using Bytes = std::vector<std::byte>;

constexpr GroupId kGroup{0};
constexpr size_t kPageBytes = 48;

Bytes Made(int seed) {
  Bytes bytes(kPageBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 5 + seed);
  return bytes;
}

Bytes Read(const step::PageStore& pages, int32_t block) {
  Bytes bytes(pages.page_bytes(kGroup));
  EXPECT_EQ(pages.Read(kGroup, BlockId(block), bytes), OkStatus());
  return bytes;
}

struct Arena {
  TestDevice device;
  device::DeviceMemory memory = *device.Allocate(4 * kPageBytes, "pages");
  std::unique_ptr<DevicePages> pages = *DevicePages::Create(memory.bytes(), kPageBytes, device);
};

TEST(DevicePages, APageIsAPieceOfTheArena) {
  Arena a;
  for (int32_t b = 0; b < 4; ++b) {
    ASSERT_EQ(a.pages->Write(kGroup, BlockId(b), Made(b)), OkStatus());
  }
  ASSERT_EQ(a.pages->Write(kGroup, BlockId(2), Made(9)), OkStatus());
  EXPECT_EQ(Read(*a.pages, 1), Made(1));
  EXPECT_EQ(Read(*a.pages, 2), Made(9));
  EXPECT_EQ(Read(*a.pages, 3), Made(3));
  EXPECT_EQ(a.device.num_pageable_copies(), 0);
  EXPECT_TRUE(a.pages->regions().empty());
}

TEST(DevicePages, ItsHostMemoryNeedsNoBuffer) {
  Arena a;
  const std::span<std::byte> memory = *a.pages->NewHostMemory(3 * kPageBytes);
  const std::span<std::byte> slot = memory.subspan(kPageBytes, kPageBytes);
  const Bytes bytes = Made(7);
  std::copy(bytes.begin(), bytes.end(), slot.begin());
  ASSERT_EQ(a.pages->Write(kGroup, BlockId(1), slot), OkStatus());
  EXPECT_EQ(Read(*a.pages, 1), bytes);
  const std::span<std::byte> last = memory.last(kPageBytes);
  ASSERT_EQ(a.pages->Read(kGroup, BlockId(1), last), OkStatus());
  EXPECT_TRUE(std::equal(last.begin(), last.end(), bytes.begin()));
  EXPECT_EQ(a.device.num_pageable_copies(), 0);
  EXPECT_EQ(a.device.most_host_bytes(),
            static_cast<int64_t>((DevicePages::kNumCopies + 3) * kPageBytes));
}

// Calls `copy` on another thread while the device executes nothing.
template <typename Copy>
void ExpectItWaits(TestDevice& device, const Copy& copy) {
  device.Hold();
  std::atomic<bool> returned = false;
  std::thread thread([&] {
    copy();
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(returned);
  device.Release();
  thread.join();
}

TEST(DevicePages, CopiesAreDoneWhenCallsReturn) {
  Arena a;
  const std::span<std::byte> own = *a.pages->NewHostMemory(kPageBytes);
  ASSERT_EQ(a.pages->Write(kGroup, BlockId(3), Made(3)), OkStatus());
  ExpectItWaits(a.device, [&] { EXPECT_EQ(Read(*a.pages, 3), Made(3)); });
  ExpectItWaits(a.device, [&] { EXPECT_TRUE(a.pages->Read(kGroup, BlockId(3), own).ok()); });
  ExpectItWaits(a.device, [&] { EXPECT_TRUE(a.pages->Write(kGroup, BlockId(1), own).ok()); });
  ExpectItWaits(a.device, [&] { EXPECT_TRUE(a.pages->Write(kGroup, BlockId(0), Made(8)).ok()); });
  EXPECT_EQ(Read(*a.pages, 1), Made(3));
  EXPECT_EQ(Read(*a.pages, 0), Made(8));
}

TEST(DevicePages, MoreThreadsThanCopiesTakeTurns) {
  Arena a;
  std::vector<std::thread> threads;
  for (int32_t b = 0; b < 4; ++b) {
    threads.emplace_back([&a, b] {
      for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(a.pages->Write(kGroup, BlockId(b), Made(10 * b + i)), OkStatus());
        ASSERT_EQ(Read(*a.pages, b), Made(10 * b + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DevicePages, ReportsWhatTheDeviceDoesNotCopy) {
  TestDevice device;
  Bytes host(2 * kPageBytes);
  const auto pages = *DevicePages::Create(host, kPageBytes, device);
  Bytes bytes(kPageBytes);
  EXPECT_EQ(pages->Read(kGroup, BlockId(1), bytes).code(), StatusCode::kInternal);
  EXPECT_EQ(pages->Write(kGroup, BlockId(1), bytes).code(), StatusCode::kInternal);
}

ExecutorOptions Options() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 64;
  options.max_num_seqs = options.max_num_logits_rows = 2;
  options.num_blocks = 9;
  return options;
}

const std::string& Text() {
  static const std::string& text = *new std::string(testing::TinyLlamaText({.seed = 5}));
  return text;
}

std::unique_ptr<DeviceExecutor> OnDevice(TestDevice& device) {
  return *DeviceExecutor::Create(*Program::Parse(Text()), {.ops = ops::testing::TestDeviceOps()},
                                 device, Options(), {.max_blocks = 4});
}

std::vector<float> Logits(const ExecutorOutput& output) {
  const float* row = output.logits().Row<float>(0);
  return {row, row + output.logits().shape[1]};
}

std::vector<float> MustRun(Executor& executor, const BatchBuilder& arrays) {
  ExecutorOutput output;
  EXPECT_EQ(executor.Execute(arrays.view(), &output), OkStatus());
  return Logits(output);
}

// Two and a half blocks in one executor, whose pages go to other blocks of another one, on the
// device or not, that continues with the next token.
TEST(DevicePages, OthersGoOnFromCopiedPages) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back((i * 7 + 3) % 83);
  BatchBuilder whole(16, 4), next(16, 4), moved(16, 4);
  whole.Add(0, 0, prompt);  // blocks 4, 3, 2 of slot 0
  next.Add(0, 40, {5});
  moved.Add(1, 40, {5});  // blocks 8, 7, 6 of slot 1

  TestDevice device;
  const auto writer = OnDevice(device), reader = OnDevice(device);
  const auto cpu = *NativeExecutor::Create(*Program::Parse(Text()), {.ops = ops::CpuOps()},
                                           Options());
  EXPECT_EQ(writer->kv_fingerprint(), cpu->kv_fingerprint());
  MustRun(*writer, whole);
  // The step in flight is of the other slot: the pages of this one are as they were.
  BatchBuilder other(16, 4);
  other.Add(1, 0, prompt);
  ASSERT_TRUE(writer->Enqueue(other.view()).ok());
  for (int32_t i = 0; i < 3; ++i) {
    const Bytes page = Read(*writer->pages(), 4 - i);
    ASSERT_EQ(reader->pages()->Write(kGroup, BlockId(8 - i), page), OkStatus());
    ASSERT_EQ(cpu->pages()->Write(kGroup, BlockId(8 - i), page), OkStatus());
  }
  ExecutorOutput output;
  ASSERT_TRUE(writer->Collect(&output).ok());
  const std::vector<float> expected = MustRun(*writer, next);
  EXPECT_EQ(MustRun(*reader, moved), expected);
  EXPECT_EQ(MustRun(*cpu, moved), expected);
}

}  // namespace
}  // namespace pagemill::program
