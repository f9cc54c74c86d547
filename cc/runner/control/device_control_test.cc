#include "cc/runner/control/device_control.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::runner {
namespace {

using device::testing::TestDevice;
using engine::KvMemory;
using engine::NewWeights;
using program::DeviceExecutor;
using program::ExecutorOptions;
using program::Program;
using program::testing::BatchBuilder;
using program::testing::TinyLlamaText;

constexpr int64_t kMemoryBytes = int64_t{32} << 20;  // of a device that fills up
const auto kCommit = [] { return OkStatus(); };

std::unique_ptr<DeviceExecutor> MakeExecutor(const std::string& text, TestDevice& device,
                                             const DeviceExecutor* host = nullptr) {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 16;
  options.max_num_seqs = options.max_num_logits_rows = 2;
  options.num_blocks = 9;
  if (host != nullptr) options.kv_page_bytes = host->kv_layout().page_bytes;
  auto executor = DeviceExecutor::Create(*Program::Parse(text),
                                         {.ops = ops::testing::TestDeviceOps()}, device, options,
                                         {.max_blocks = 2, .shares_kv = host != nullptr}, host);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

// Logits of the last token of `tokens`, which begin at `position`; slots have pages of their own.
StatusOr<std::vector<float>> LogitsOf(DeviceExecutor& executor, const std::vector<int32_t>& tokens,
                                      int32_t position = 0, int32_t slot = 0) {
  BatchBuilder batch(executor.kv_layout().TableBlockSizes(), 2);
  batch.Add(slot, position, tokens);
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor.Execute(batch.view(), &output));
  const float* row = output.logits().Row<const float>(0);
  return std::vector<float>(row, row + output.logits().shape[1]);
}

const std::vector<int32_t> kText = {3, 1, 4, 1, 5, 9, 2, 6};

// Of steps that are repeated until they are replayed from graphs.
std::vector<float> MustRun(DeviceExecutor& executor, int32_t slot = 0) {
  std::vector<float> logits;
  for (int i = 0; i < 3; ++i) {
    const auto prompt = LogitsOf(executor, kText, 0, slot);
    EXPECT_TRUE(prompt.ok()) << prompt.status().ToString();
    const auto next = LogitsOf(executor, {7}, 8, slot);
    EXPECT_TRUE(next.ok()) << next.status().ToString();
    if (next.ok()) logits = *next;
  }
  return logits;
}

TEST(DeviceControl, MemoryIsFreedDuringSleepAndStepsAreEqualAfterIt) {
  TestDevice device;
  const auto executor = MakeExecutor(TinyLlamaText({}), device);
  DeviceControl control({{"model", executor.get()}});
  const std::vector<float> before = MustRun(*executor);
  EXPECT_GT(executor->num_graphs(), 0);
  const int64_t awake = device.CountMemory().free;
  const std::vector<float> next = *LogitsOf(*executor, {7}, 8);

  ASSERT_TRUE(control.Sleep(KvMemory::kKeep).ok());
  EXPECT_GE(device.CountMemory().free - awake, executor->plan().weight_bytes);
  EXPECT_EQ(LogitsOf(*executor, kText).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(device.CountMemory().free, awake);
  EXPECT_EQ(executor->num_graphs(), 0) << "they have addresses that are gone";
  EXPECT_EQ(*LogitsOf(*executor, {7}, 8), next) << "from KV that was kept";
  EXPECT_EQ(MustRun(*executor), before);

  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  EXPECT_GE(device.CountMemory().free - awake,
            executor->plan().weight_bytes + executor->plan().kv_bytes);
  std::vector<std::byte> page(static_cast<size_t>(executor->kv_layout().page_bytes));
  EXPECT_EQ(executor->pages()->Read(step::GroupId(0), step::BlockId(1), page).code(),
            StatusCode::kFailedPrecondition);
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(device.CountMemory().free, awake);
  EXPECT_EQ(MustRun(*executor), before);
  EXPECT_TRUE(executor->pages()->Read(step::GroupId(0), step::BlockId(1), page).ok());
}

TEST(DeviceControl, ItSleepsOnIfOthersUseTheMemory) {
  TestDevice device(kMemoryBytes);
  const auto executor = MakeExecutor(TinyLlamaText({}), device);
  DeviceControl control({{"model", executor.get()}});
  const std::vector<float> before = MustRun(*executor);
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  {
    const auto others = *device.Allocate(device.CountMemory().free, "others");
    EXPECT_EQ(control.Wake().code(), StatusCode::kResourceExhausted);
    EXPECT_FALSE(LogitsOf(*executor, kText).ok());
  }
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), before);
}

TEST(DeviceControl, AnUpdateGivesTheOutputsOfTheOtherWeights) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  TestDevice device;
  const auto executor = MakeExecutor(one, device), other = MakeExecutor(two, device);
  const std::vector<float> of_one = MustRun(*executor), of_two = MustRun(*other);
  ASSERT_NE(of_one, of_two);
  DeviceControl control({{"model", executor.get()}});
  const Digest128 before = executor->kv_fingerprint();
  const int64_t free = device.CountMemory().free;
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_EQ(device.CountMemory().free, free);
  EXPECT_EQ(MustRun(*executor), of_two);
  EXPECT_FALSE(executor->kv_fingerprint() == before);
  EXPECT_TRUE(executor->kv_fingerprint() == other->kv_fingerprint());
  ASSERT_TRUE(control.Sleep(KvMemory::kFree).ok());
  ASSERT_TRUE(control.UpdateWeights({{"model", one}}, NewWeights::kBeside, kCommit).ok());
  EXPECT_FALSE(LogitsOf(*executor, kText).ok()) << "it still sleeps";
  ASSERT_TRUE(control.Wake().ok());
  EXPECT_EQ(MustRun(*executor), of_one);
}

TEST(DeviceControl, WhatIsRefusedChangesNothing) {
  TestDevice device(kMemoryBytes);
  const auto executor = MakeExecutor(TinyLlamaText({}), device);
  DeviceControl control({{"model", executor.get()}});
  const std::vector<float> before = MustRun(*executor);
  const auto expect_refusal = [&](const engine::WeightSources& sources, const Status& commit,
                                  const std::string& words) {
    for (const NewWeights where : {NewWeights::kBeside, NewWeights::kOver}) {
      const Status status = control.UpdateWeights(sources, where, [&] { return commit; });
      EXPECT_NE(status.message().find(words), std::string::npos) << status.ToString();
      EXPECT_EQ(MustRun(*executor), before);
    }
  };
  const std::string other = TinyLlamaText({.seed = 2});
  expect_refusal({{"encoder", other}}, OkStatus(), "'encoder'");
  expect_refusal({{"model", "no program"}}, OkStatus(), "line 1");
  expect_refusal({{"model", TinyLlamaText({.vocab = 85})}}, OkStatus(), "f32[85,64]");
  expect_refusal({{"model", other}}, Unavailable("not now"), "not now");
  const auto others = *device.Allocate(device.CountMemory().free - 1000, "others");
  const Status beside = control.UpdateWeights({{"model", other}}, NewWeights::kBeside, kCommit);
  EXPECT_NE(beside.message().find("no memory left"), std::string::npos) << beside.ToString();
  EXPECT_EQ(MustRun(*executor), before);
}

TEST(DeviceControl, WeightsAreWrittenOverTheOldOnesWithoutMoreMemory) {
  const std::string one = TinyLlamaText({.seed = 1}), two = TinyLlamaText({.seed = 2});
  TestDevice device(kMemoryBytes);
  const auto executor = MakeExecutor(one, device);
  const std::vector<float> of_one = MustRun(*executor);
  TestDevice other_device;
  const std::vector<float> of_two = MustRun(*MakeExecutor(two, other_device));
  DeviceControl control({{"model", executor.get()}});
  const auto others = *device.Allocate(device.CountMemory().free - 1000, "others");
  ASSERT_TRUE(control.UpdateWeights({{"model", two}}, NewWeights::kOver, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_two);
  ASSERT_TRUE(control.UpdateWeights({{"model", one}}, NewWeights::kOver, kCommit).ok());
  EXPECT_EQ(MustRun(*executor), of_one);
}

TEST(DeviceControl, ADraftModelSleepsAndWakesWithItsHost) {
  TestDevice device;
  const auto host = MakeExecutor(TinyLlamaText({.seed = 1}), device);
  const auto draft =
      MakeExecutor(TinyLlamaText({.seed = 2, .layers = 1}), device, host.get());
  DeviceControl control({{"model", host.get()}, {"draft", draft.get()}});
  const std::vector<float> of_host = MustRun(*host), of_draft = MustRun(*draft, 1);
  for (const KvMemory kv : {KvMemory::kFree, KvMemory::kKeep}) {
    ASSERT_TRUE(control.Sleep(kv).ok());
    ASSERT_TRUE(control.Wake().ok());
    EXPECT_EQ(MustRun(*host), of_host);
    EXPECT_EQ(MustRun(*draft, 1), of_draft);
  }
}

}  // namespace
}  // namespace pagemill::runner
