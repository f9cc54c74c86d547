#include "cc/program/device/device_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;
using testing::BatchBuilder;

constexpr int32_t kBlockSize = 16;
constexpr int32_t kBlocks = 3;                // per request
constexpr int32_t kVocab = 83, kTokens = 80;  // columns of logits, and those that are tokens

ExecutorOptions Options() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 24;
  options.max_num_seqs = 6;
  options.max_num_logits_rows = 6;
  options.block_size = kBlockSize;
  options.num_blocks = 64;
  return options;
}

std::unique_ptr<NativeExecutor> OnCpu(const std::string& text) {
  auto executor = NativeExecutor::Create(*Program::Parse(text), {.ops = ops::CpuOps()}, Options());
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

StatusOr<std::unique_ptr<DeviceExecutor>> OnDevice(const std::string& text, TestDevice& device,
                                                   const DeviceExecutorOptions& device_options) {
  return DeviceExecutor::Create(*Program::Parse(text), {.ops = ops::testing::TestDeviceOps()},
                                device, Options(), device_options);
}

std::vector<float> Logits(const ExecutorOutput& output) {
  const TensorView logits = output.logits();
  return {logits.Data<float>(), logits.Data<float>() + logits.Elements()};
}

std::vector<float> MustRun(Executor& executor, const ops::StepBatch& batch) {
  ExecutorOutput output;
  const Status status = executor.Execute(batch, &output);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return status.ok() ? Logits(output) : std::vector<float>();
}

// A prompt for each of `requests` requests, then steps of one token per request. `tables` is the
// program's number of block tables.
std::vector<BatchBuilder> Steps(int32_t requests, int32_t decodes, size_t tables = 1) {
  ops::conformance::Random random(7);
  const auto token = [&] { return static_cast<int32_t>(random.Int(0, 82)); };
  const std::vector<int32_t> block_sizes(tables, kBlockSize);
  std::vector<BatchBuilder> steps(static_cast<size_t>(decodes) + 1,
                                  BatchBuilder(block_sizes, kBlocks));
  for (int32_t r = 0; r < requests; ++r) {
    std::vector<int32_t> prompt(static_cast<size_t>(1 + r));
    std::generate(prompt.begin(), prompt.end(), token);
    steps[0].Add(r, 0, prompt);
    for (int32_t d = 0; d < decodes; ++d)
      steps[static_cast<size_t>(d) + 1].Add(r, 1 + r + d, {token()});
  }
  return steps;
}

constexpr int32_t kGraphTokens = 16;

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

std::vector<int32_t> Columns(const ExecutorOutput& output) {
  std::vector<int32_t> columns;
  for (const ops::RowMaximum& maximum : output.maxima) columns.push_back(maximum.column);
  return columns;
}

// The largest token column of each row.
std::vector<int32_t> Largest(const std::vector<float>& logits) {
  std::vector<int32_t> largest;
  for (auto row = logits.begin(); row != logits.end(); row += kVocab) {
    largest.push_back(static_cast<int32_t>(std::max_element(row, row + kTokens) - row));
  }
  return largest;
}

// Each step reads its tokens from the previous one, which is still in flight.
TEST_P(DeviceExecutorTest, AStepReadsTheTokensOfTheOneBefore) {
  const std::string text = testing::TinyLlamaText({.seed = 6});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device,
                           {.max_blocks = kBlocks,
                            .max_graph_tokens = GetParam(),
                            .token_columns = kTokens});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const std::vector<BatchBuilder> steps = Steps(/*requests=*/3, /*decodes=*/4);
  const std::vector<int32_t> rows = {TokenOfRow(0), TokenOfRow(1), TokenOfRow(2)};
  std::vector<std::vector<int32_t>> expected;
  for (const BatchBuilder& step : steps) {
    ops::StepBatch batch = step.view();
    if (!expected.empty()) batch.token_ids = expected.back().data();
    expected.push_back(Largest(MustRun(*reference, batch)));
  }
  device.Hold();
  ExecutorOutput output;
  for (size_t i = 0; i < steps.size(); ++i) {
    ops::StepBatch batch = steps[i].view();
    batch.argmax_columns = kTokens;
    if (i > 0) batch.token_ids = rows.data();
    ASSERT_TRUE((*executor)->Enqueue(batch).ok());
    if (i == 0) continue;
    device.Release();
    ASSERT_TRUE((*executor)->Collect(&output).ok());
    EXPECT_EQ(Columns(output), expected[i - 1]) << "step " << i - 1;
    EXPECT_EQ(output.logits().rank, 0) << "only maxima come to the host";
  }
  // A step that requests logits may read tokens, and produces none.
  ops::StepBatch last = steps.back().view();
  last.token_ids = rows.data();
  ASSERT_TRUE((*executor)->Enqueue(last).ok());
  EXPECT_EQ((*executor)->Collect(&output).code(), StatusCode::kOk);
  EXPECT_EQ(Columns(output), expected.back());
  ASSERT_TRUE((*executor)->Collect(&output).ok());
  EXPECT_EQ(output.logits().shape[0], 3);
  EXPECT_EQ((*executor)->Enqueue(last).message(),
            "token 0 of a step is row 0 of the step before, which has found 0");
}

constexpr size_t kMaskWords = 3;  // bits for kTokens

// The draws of step `step`: row 0 is drawn, row 1 takes the largest, row 2 is drawn from few. If
// masked, rows 0 and 1 have masks of their own.
std::vector<ops::RowDraw> Draws(int32_t step, bool masked) {
  std::vector<ops::RowDraw> draws(3);
  draws[0] = {.temperature = 3.0f, .position = step};
  draws[2] = {.temperature = 5.0f, .top_p = 0.9f, .top_k = 20, .position = step};
  for (ops::RowDraw& draw : draws) draw.SetSeed(1ull << 40 | 5);
  if (masked) draws[0].mask = 1, draws[1].mask = 0;
  return draws;
}

// The first allows tokens 4, 37 and 64, the second every other token.
std::vector<uint32_t> Masks(bool masked) {
  if (!masked) return {};
  return {1u << 4, 1u << 5, 1u, 0x55555555u, 0x55555555u, 0x55555555u};
}

// Rows 0 and 2 have penalties, of tokens that are counted in slots 5 and 4: some of a prompt, then
// one in each step. Row 1 has a bias, which its mask excludes.
struct Adjustments {
  Adjustments(int32_t step, bool adjusted) {
    if (!adjusted) return;
    biases = {{1, 6, 30.0f}, {1, 5, 0.5f}, {0, 40, -INFINITY}};
    penalties = {{.row = 2, .slot = 4, .repetition = 1.5f, .frequency = 0.5f},
                 {.row = 0, .slot = 5, .repetition = 3.0f, .presence = 2.0f}};
    if (step == 0) cleared_slots = {4, 5};
    for (int32_t token = 0; step == 0 && token < kTokens; token += 3) {
      counts.push_back({token % 2 == 0 ? 4 : 5, token, ops::kInPrompt});
    }
    if (step == 0) return;
    counts = {{4, ops::TokenOfInput(2), ops::kOneOutput},
              {5, ops::TokenOfInput(0), ops::kOneOutput}};
  }
  std::vector<int32_t> cleared_slots;
  std::vector<ops::TokenCount> counts;
  std::vector<ops::LogitBias> biases;
  std::vector<ops::RowPenalties> penalties;
};

// What a host that has counted `ids` does to the logits.
void Adjust(const Adjustments& step, const std::vector<int32_t>& ids,
            std::map<int32_t, std::vector<int32_t>>* counted, std::vector<float>* logits) {
  const auto logit = [&](int32_t row, int32_t token) -> float& {
    return (*logits)[static_cast<size_t>(row * kVocab + token)];
  };
  for (const int32_t slot : step.cleared_slots) (*counted)[slot].assign(kTokens, 0);
  for (const ops::TokenCount& count : step.counts) {
    const int32_t token =
        count.token_id >= 0 ? count.token_id : ids[static_cast<size_t>(-1 - count.token_id)];
    (*counted)[count.slot][static_cast<size_t>(token)] += count.amount;
  }
  for (const ops::LogitBias& bias : step.biases) logit(bias.row, bias.token_id) += bias.bias;
  for (const ops::RowPenalties& row : step.penalties) {
    for (int32_t token = 0; token < kTokens; ++token) {
      float& x = logit(row.row, token);
      x = ops::PenalizedLogit(x, (*counted)[row.slot][static_cast<size_t>(token)], row);
    }
  }
}

// The tokens that a host would choose from the logits.
std::vector<int32_t> Chosen(std::vector<float> logits, const std::vector<ops::RowDraw>& draws,
                            const std::vector<uint32_t>& masks) {
  const ops::RowPasses& passes = ops::ChooseRowPasses({});
  std::vector<ops::Candidate> storage(kTokens);
  std::vector<int32_t> chosen;
  for (size_t row = 0; row < draws.size(); ++row) {
    const std::span<float> tokens = std::span(logits).subspan(row * kVocab, kTokens);
    for (size_t t = 0; draws[row].mask >= 0 && t < tokens.size(); ++t) {
      const size_t word = static_cast<size_t>(draws[row].mask) * kMaskWords + t / 32;
      if ((masks[word] >> t % 32 & 1u) == 0) tokens[t] = -INFINITY;
    }
    chosen.push_back(
        ops::DrawRow(passes, tokens, ops::ArgMax(passes, tokens), draws[row], storage));
  }
  return chosen;
}

class DeviceExecutorDraws : public ::testing::TestWithParam<std::tuple<int32_t, bool, bool>> {};

// Each step reads its tokens from the previous one, which chooses them after its graph and is still
// in flight.
TEST_P(DeviceExecutorDraws, AStepReadsTheTokensThatTheOneBeforeDraws) {
  const auto& [max_graph_tokens, masked, adjusted] = GetParam();
  const std::string text = testing::TinyLlamaText({.seed = 6});
  const auto reference = OnCpu(text);
  TestDevice device;
  auto executor = OnDevice(text, device,
                           {.max_blocks = kBlocks,
                            .max_steps_in_flight = 3,
                            .max_graph_tokens = max_graph_tokens,
                            .token_columns = kTokens});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_TRUE((*executor)->samples());
  const std::vector<BatchBuilder> steps = Steps(/*requests=*/3, /*decodes=*/4);
  const std::vector<int32_t> rows = {TokenOfRow(0), TokenOfRow(1), TokenOfRow(2)};
  const std::vector<uint32_t> masks = Masks(masked);
  std::vector<std::vector<int32_t>> expected;
  std::map<int32_t, std::vector<int32_t>> counted;
  int32_t different = 0;  // draws that differ from the argmax
  for (size_t i = 0; i < steps.size(); ++i) {
    ops::StepBatch batch = steps[i].view();
    if (i > 0) batch.token_ids = expected.back().data();
    std::vector<float> logits = MustRun(*reference, batch);
    const auto step = static_cast<int32_t>(i);
    if (adjusted) Adjust({step, true}, i > 0 ? expected.back() : rows, &counted, &logits);
    expected.push_back(Chosen(logits, Draws(step, masked), masks));
    different += expected.back() != Largest(logits) ? 1 : 0;
  }
  EXPECT_GT(different, 3);
  device.Hold();
  ExecutorOutput output;
  const auto collect = [&](size_t step) {
    device.Release();
    ASSERT_TRUE((*executor)->Collect(&output).ok());
    EXPECT_EQ(Columns(output), expected[step]) << "step " << step;
    EXPECT_EQ(output.logits().rank, 0) << "only tokens come to the host";
  };
  for (size_t i = 0; i < steps.size() + 2; ++i) {
    if (i < steps.size()) {
      ops::StepBatch batch = steps[i].view();
      batch.argmax_columns = kTokens;
      if (i > 0) batch.token_ids = rows.data();
      ASSERT_TRUE((*executor)->Enqueue(batch).ok());
    }
    // An older step is collected before or after the newest is sampled from.
    const bool collects_first = i % 2 == 1;
    if (i >= 2 && collects_first) collect(i - 2);
    if (i < steps.size()) {
      const std::vector<ops::RowDraw> draws = Draws(static_cast<int32_t>(i), masked);
      const Adjustments with(static_cast<int32_t>(i), adjusted);
      ASSERT_TRUE((*executor)
                      ->Sample({draws, masks, with.cleared_slots, with.counts, with.biases,
                                with.penalties})
                      .ok());
    }
    if (i >= 2 && !collects_first) collect(i - 2);
  }
  EXPECT_EQ(device.num_pageable_copies(), 0);
}

INSTANTIATE_TEST_SUITE_P(GraphsMasksAndPenalties, DeviceExecutorDraws,
                         ::testing::Combine(::testing::Values(0, kGraphTokens), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(DeviceExecutor, ARowWhoseMaskAllowsNothingHasNoToken) {
  TestDevice device;
  auto executor = *OnDevice(testing::TinyLlamaText({}), device,
                            {.max_blocks = kBlocks, .token_columns = kTokens});
  BatchBuilder one(kBlockSize, kBlocks);
  one.Add(0, 0, {1});
  ops::StepBatch batch = one.view();
  batch.argmax_columns = kTokens;
  const std::vector<ops::RowDraw> draws = {{.temperature = 1.0f, .mask = 0}};
  const std::vector<uint32_t> masks = {0, 0, 0xffff0000u};  // bits beyond the tokens
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  ASSERT_TRUE(executor->Sample({.rows = draws, .masks = masks}).ok());
  ExecutorOutput output;
  ASSERT_TRUE(executor->Collect(&output).ok());
  EXPECT_EQ(output.maxima[0].column, -1);
  EXPECT_EQ(output.maxima[0].logit, -INFINITY);
  ASSERT_TRUE(executor->Enqueue(batch).ok());
  EXPECT_EQ(executor->Sample({.rows = draws}).message(),
            "the draws of a step do not fit its 0 token masks");
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
  EXPECT_EQ(executor->Sample({.rows = Draws(0, false)}).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(executor->Enqueue(small.view()).ok());
  EXPECT_EQ(executor->Sample({.rows = Draws(0, false)}).code(), StatusCode::kFailedPrecondition)
      << "the step wants logits";
  other.argmax_columns = kTokens;
  ASSERT_TRUE(executor->Enqueue(other).ok());
  EXPECT_EQ(executor->Sample({.rows = Draws(0, false)}).message(),
            "a step of 1 rows of logits has 3 draws");
}

}  // namespace
}  // namespace pagemill::program
