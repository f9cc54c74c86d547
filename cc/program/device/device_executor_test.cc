#include "cc/program/device/device_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/testing/executor_steps.h"
#include "cc/program/device/weight_arena.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

// The parameter is max_graph_tokens.
class DeviceExecutorTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(DeviceExecutorTest, GivesTheBitsOfTheCpu) {
  const std::string text = testing::TinyLlamaText({.seed = 3, .window = 8});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor =
      OnDevice(text, device, {.max_blocks = kBlocks + 1, .max_graph_tokens = GetParam()});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  for (const BatchBuilder& step : Steps(/*requests=*/5, /*decodes=*/4, /*tables=*/2)) {
    EXPECT_TRUE(ops::conformance::BitEqual(MustRun(**executor, step.view()),
                                           MustRun(*reference, step.view())));
  }
  EXPECT_EQ(device.num_replays(), GetParam() == 0 ? 0 : 3) << "all but the first decode";
  EXPECT_EQ(device.num_pageable_copies(), 0);
}

TEST_P(DeviceExecutorTest, GivesTheSameBitsWithWeightsOnTheHost) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const std::string text = testing::TinyLlamaText({.seed = 3, .weight_dtype = dtype});
    const auto reference = OnCpu(text);
    TestDevice other;
    const auto without = *OnDevice(text, other, {.max_blocks = kBlocks});
    const WeightArena arena(without->program(), without->plan().kernels.kernels, 0);
    for (const int64_t offload_bytes : {int64_t{1}, arena.bytes() / 2, arena.offloadable_bytes()}) {
      TestDevice device;
      const auto executor = *OnDevice(text, device,
                                      {.max_blocks = kBlocks,
                                       .max_graph_tokens = GetParam(),
                                       .upload = {.offload_bytes = offload_bytes}});
      EXPECT_GE(executor->plan().host_weight_bytes, offload_bytes);
      const int64_t free = device.CountMemory().free;
      for (int loads = 0; loads < 2; ++loads) {
        for (const BatchBuilder& step : Steps(/*requests=*/3, /*decodes=*/3)) {
          EXPECT_TRUE(ops::conformance::BitEqual(MustRun(*executor, step.view()),
                                                 MustRun(*reference, step.view())));
        }
        executor->UnloadWeights();
        ASSERT_TRUE(executor->LoadWeights().ok());
        EXPECT_EQ(device.CountMemory().free, free);
      }
      EXPECT_EQ(device.num_replays(), GetParam() == 0 ? 0 : 2 * 2);
    }
  }
}

TEST_P(DeviceExecutorTest, KeepsTwoStepsInFlight) {
  const std::string text = testing::TinyLlamaText({.seed = 4});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device, {.max_blocks = kBlocks, .max_graph_tokens = GetParam()});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  std::vector<BatchBuilder> steps = Steps(/*requests=*/3, /*decodes=*/5);
  device.Hold();
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_TRUE((*executor)->Enqueue(steps[i].view()).ok());
    if (i == 0) continue;
    if (i == 1) {
      EXPECT_EQ((*executor)->Enqueue(steps[2].view()).code(), StatusCode::kFailedPrecondition);
      device.Release();
    }
    ExecutorOutput output;
    ASSERT_TRUE((*executor)->Collect(&output).ok());
    EXPECT_TRUE(
        ops::conformance::BitEqual(Logits(output), MustRun(*reference, steps[i - 1].view())));
  }
}

// Two programs, each with requests of its own on pages of one arena, by turns.
TEST_P(DeviceExecutorTest, ADraftModelSharesPagesAndStream) {
  const std::string text = testing::TinyLlamaText({.seed = 4});
  const std::string small = testing::TinyLlamaText({.seed = 9, .layers = 1});
  const Target target = {.ops = ops::testing::TestDeviceOps()};
  const DeviceExecutorOptions device_options = {.max_blocks = kBlocks,
                                                .max_graph_tokens = GetParam()};
  DeviceExecutorOptions shares = device_options;
  shares.shares_kv = true;
  TestDevice device;
  const auto host = *OnDevice(text, device, device_options);
  const auto share = [&](const ExecutorOptions& options) {
    return DeviceExecutor::Create(*Program::Parse(small), target, device, options, shares,
                                  host.get());
  };
  EXPECT_EQ(share(Options()).status().code(), StatusCode::kInvalidArgument) << "smaller pages";
  ExecutorOptions options = Options();
  options.kv_page_bytes = host->kv_layout().page_bytes;
  const auto draft = *share(options);
  EXPECT_EQ(draft->pages(), nullptr);
  const auto reference = OnCpu(text);
  const auto small_reference =
      *NativeExecutor::Create(*Program::Parse(small), {.ops = ops::CpuOps()}, options);
  for (int32_t i = 0; i < 4; ++i) {
    BatchBuilder step(kBlockSize, kBlocks);
    BatchBuilder pass(draft->kv_layout().TableBlockSizes(), kBlocks);
    step.Add(0, i, {3 + i});
    pass.Add(3, i, {70 - i});
    device.Hold();
    ASSERT_TRUE(host->Enqueue(step.view()).ok());
    ASSERT_TRUE(draft->Enqueue(pass.view()).ok());
    device.Release();
    ExecutorOutput output;
    ASSERT_TRUE(draft->Collect(&output).ok());
    EXPECT_TRUE(ops::conformance::BitEqual(Logits(output), MustRun(*small_reference, pass.view())));
    ASSERT_TRUE(host->Collect(&output).ok());
    EXPECT_TRUE(ops::conformance::BitEqual(Logits(output), MustRun(*reference, step.view())));
  }
  EXPECT_EQ(device.num_replays(), GetParam() == 0 ? 0 : 2 * 3);
}

INSTANTIATE_TEST_SUITE_P(Graphs, DeviceExecutorTest, ::testing::Values(0, kGraphTokens));

// A prompt with image embeddings in some places, then steps of one token each without any, which
// are replayed.
TEST_P(DeviceExecutorTest, ProgramsWithMediaGiveTheBitsOfTheCpu) {
  constexpr int32_t kRequests = 3, kDecodes = 4, kHidden = 64;
  const std::string text = testing::TinyLlamaText({.seed = 3, .hidden = kHidden, .media = true});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device, {.max_blocks = kBlocks, .max_graph_tokens = GetParam()});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  ops::conformance::Random random(9);
  const int32_t rows[] = {0, 2, 3};
  for (const BatchBuilder& step : Steps(kRequests, kDecodes)) {
    ops::StepBatch batch = step.view();
    std::vector<int32_t> grid;
    for (int32_t i = 0; i < batch.num_tokens * ops::kGridDims; ++i) {
      grid.push_back(static_cast<int32_t>(random.Int(0, 40)));
    }
    std::vector<float> embeddings(std::size(rows) * kHidden);
    for (float& value : embeddings) value = static_cast<float>(random.Int(-9, 9)) / 8;
    batch.num_media_rows = batch.num_tokens > kRequests ? 3 : 0;
    batch.media_rows = rows;
    const TensorView input =
        TensorView::Dense(embeddings.data(), DType::kF32, {batch.num_media_rows, kHidden});
    batch.inputs = {&input, 1};
    EXPECT_EQ((*executor)->Enqueue(batch).message(),
              "a step without grid_positions, which the program reads");
    batch.grid_positions = grid.data();
    EXPECT_TRUE(ops::conformance::BitEqual(MustRun(**executor, batch), MustRun(*reference, batch)));
  }
  EXPECT_EQ(device.num_replays(), GetParam() == 0 ? 0 : kDecodes - 1);
  EXPECT_EQ(device.num_pageable_copies(), 0);
}

TEST(DeviceExecutor, LargerStepsThanItsGraphsAreEnqueuedKernelByKernel) {
  const std::string text = testing::TinyLlamaText({.seed = 5});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device, {.max_blocks = kBlocks, .max_graph_tokens = 2});
  ASSERT_TRUE(executor.ok());
  for (const BatchBuilder& step : Steps(/*requests=*/3, /*decodes=*/3)) {
    EXPECT_TRUE(ops::conformance::BitEqual(MustRun(**executor, step.view()),
                                           MustRun(*reference, step.view())));
  }
  EXPECT_EQ(device.num_replays(), 0);
}

// A device that has no memory for graphs runs all steps without.
TEST(DeviceExecutor, RunsWithoutTheGraphsThatDoNotFit) {
  const std::string text = testing::TinyLlamaText({.seed = 5});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device, {.max_blocks = kBlocks});
  ASSERT_TRUE(executor.ok());
  device.RefuseGraphs();
  for (const BatchBuilder& step : Steps(/*requests=*/3, /*decodes=*/3)) {
    EXPECT_TRUE(ops::conformance::BitEqual(MustRun(**executor, step.view()),
                                           MustRun(*reference, step.view())));
  }
  EXPECT_EQ((*executor)->num_graphs(), 0);
}

// Steps of some of the requests, each of which continues or begins again, with any rows of logits.
class RandomSteps {
 public:
  explicit RandomSteps(uint64_t seed) : random_(seed) {}

  BatchBuilder Next() {
    BatchBuilder step(std::vector<int32_t>{kBlockSize, kBlockSize}, kBlocks);
    const bool decode = random_.Int(0, 1) == 0;
    rows_.clear();
    int32_t tokens = 0;
    for (int32_t r = 0; r < Options().max_num_seqs; ++r) {
      if (random_.Int(0, 2) == 0) continue;
      const auto most = std::min<int64_t>(decode ? 1 : 5, Options().max_num_tokens - tokens);
      if (most < 1) break;
      std::vector<int32_t> ids(static_cast<size_t>(random_.Int(1, most)));
      for (int32_t& id : ids) id = static_cast<int32_t>(random_.Int(0, kVocab - 1));
      int32_t& position = positions_[static_cast<size_t>(r)];
      const auto count = static_cast<int32_t>(ids.size());
      if (position + count > kBlocks * kBlockSize || random_.Int(0, 9) == 0) position = 0;
      step.Add(r, position, ids);
      position += count;
      tokens += count;
      // All requests of half of the steps have a row of logits, as in decoding.
      if (decode || random_.Int(0, 3) > 0) rows_.push_back(tokens - 1);
    }
    if (tokens == 0) step.Add(0, 0, {1});
    return step;
  }
  // Rows of logits of the last step.
  const std::vector<int32_t>& rows() const { return rows_; }

 private:
  ops::conformance::Random random_;
  std::array<int32_t, 6> positions_ = {};
  std::vector<int32_t> rows_;
};

TEST(DeviceExecutor, AnyStepsGiveTheBitsOfTheirKernelsOneByOne) {
  const std::string text = testing::TinyLlamaText({.seed = 3, .window = 8});
  TestDevice device;
  const auto eager = OnDevice(text, device, {.max_blocks = kBlocks, .max_graph_tokens = 0});
  const auto graphs = OnDevice(text, device,
                               {.max_blocks = kBlocks, .max_graph_tokens = 24, .max_graphs = 4});
  ASSERT_TRUE(eager.ok() && graphs.ok());
  RandomSteps steps(8);
  std::vector<std::vector<float>> expected;
  int64_t collected = 0;
  const auto collect = [&] {
    ExecutorOutput output;
    ASSERT_TRUE((*graphs)->Collect(&output).ok());
    const size_t step = static_cast<size_t>(collected++);
    EXPECT_TRUE(ops::conformance::BitEqual(Logits(output), expected[step])) << "step " << step;
  };
  for (int32_t i = 0; i < 60; ++i) {
    const BatchBuilder step = steps.Next();
    ops::StepBatch batch = step.view();
    if (!steps.rows().empty()) {
      batch.num_logits_rows = static_cast<int32_t>(steps.rows().size());
      batch.logits_rows = steps.rows().data();
    }
    expected.push_back(MustRun(**eager, batch));
    ASSERT_TRUE((*graphs)->Enqueue(batch).ok());
    EXPECT_LE((*graphs)->num_graphs(), 4);
    if (i > 0) collect();
  }
  collect();
  EXPECT_GT(device.num_replays(), 15);
  EXPECT_EQ(device.num_pageable_copies(), 0);
}

TEST(DeviceExecutor, RefusesWhatItWasNotMadeFor) {
  const std::string text = testing::TinyLlamaText({});
  TestDevice device;
  EXPECT_EQ(OnDevice(text, device, {.max_graphs = 0}).status().message(),
            "max_graphs is 0, it must be at least 1");
  EXPECT_EQ(OnDevice(text, device, {.token_columns = kVocab + 1}).status().message(),
            "token_columns is 84, more than the 83 columns of the program's logits");
  const std::string pooled = testing::TinyLlamaText({.pooled = true});
  EXPECT_EQ(OnDevice(pooled, device, {.token_columns = 1}).status().message(),
            "token_columns is set, but the program has no logits");
  auto executor = *OnDevice(text, device, {.max_blocks = kBlocks - 1, .token_columns = kTokens});
  BatchBuilder batch(kBlockSize, kBlocks);
  batch.Add(0, 0, {1});
  EXPECT_EQ(executor->Enqueue(batch.view()).code(), StatusCode::kInvalidArgument);
  BatchBuilder small(kBlockSize, kBlocks - 1);
  small.Add(0, 0, {1});
  ops::StepBatch other = small.view();
  other.argmax_columns = kVocab;
  EXPECT_EQ(executor->Enqueue(other).message(),
            "a step wants maxima of 83 columns, token_columns is 80");
  ExecutorOutput output;
  EXPECT_EQ(executor->Collect(&output).code(), StatusCode::kFailedPrecondition);
  const std::vector<ops::RowDraw> draws(3);
  EXPECT_EQ(executor->Sample({.rows = draws}).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(executor->Enqueue(small.view()).ok());
  EXPECT_EQ(executor->Sample({.rows = draws}).code(), StatusCode::kFailedPrecondition)
      << "the step wants logits";
  other.argmax_columns = kTokens;
  ASSERT_TRUE(executor->Enqueue(other).ok());
  EXPECT_EQ(executor->Sample({.rows = draws}).message(),
            "a step of 1 rows of logits has 3 draws");
}

}  // namespace
}  // namespace pagemill::program
