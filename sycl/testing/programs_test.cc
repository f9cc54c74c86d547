// Programs on the CPU as a SYCL device: the tokens of the CPU's own kernels, kernel by kernel and
// from graphs, chosen on the host and on the device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/device/testing/device_parity.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/testing/sycl_ops.h"

namespace pagemill::sycl {
namespace {

using program::testing::BatchBuilder;
using program::testing::TinyLlamaText;
using Tokens = std::vector<int32_t>;  // one for each request

constexpr int32_t kVocab = 83, kRequests = 3, kDecodes = 5, kBlockSize = 16, kBlocks = 3;

SyclDevice& Device() {
  // Never closed: the runtime may be gone when static objects are destroyed.
  static SyclDevice* const device = testing::OpenCpuDevice().release();
  return *device;
}

program::Target TheTarget() { return {.ops = SyclOps(), .capabilities = Device().capabilities()}; }

Status Check(const std::string& text, DType act, double tolerance) {
  return program::testing::CheckCloseLogits(
      text, act, tolerance, {.target = TheTarget(), .device = Device(), .num_replays = [] {
                               return Device().num_replays();
                             }});
}

TEST(Programs, ALlamaHasTheTokensOfTheCpu) {
  const Status status = Check(TinyLlamaText({.seed = 3, .window = 8}), DType::kF32, 1e-4);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Programs, ALlamaInBf16IsClose) {
  const Status status =
      Check(TinyLlamaText({.seed = 5, .weight_dtype = DType::kBF16}), DType::kBF16, 0.05);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Programs, ALlamaOfBlocksHasTheTokensOfTheCpu) {
  const Status status =
      Check(TinyLlamaText({.seed = 4, .weight_dtype = DType::kQ4_1}), DType::kF32, 1e-4);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Without oneDNN, which is not recorded into graphs of the CPU.
TEST(Programs, RanksOfALlamaHaveItsTokens) {
  std::vector<std::string> parts;
  for (int32_t r = 0; r < 2; ++r) {
    parts.push_back(TinyLlamaText({.seed = 8, .rank = r, .ranks = 2}));
  }
  const Status status = program::testing::CheckLogitsOfRanks(
      TinyLlamaText({.seed = 8}), parts, 1e-4,
      {.target = TheTarget(),
       .device = Device(),
       .num_replays = [] { return Device().num_replays(); },
       .deterministic = true});
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Step 0 has the prompts, later ones a token for each request.
BatchBuilder StepOf(int32_t step, const Tokens& tokens) {
  BatchBuilder batch(kBlockSize, kBlocks);
  for (int32_t r = 0; r < kRequests; ++r) {
    const Tokens prompt(static_cast<size_t>(1 + 9 * r), 7 + r);
    if (step == 0) batch.Add(r, 0, prompt);
    if (step == 0) continue;
    const auto position = static_cast<int32_t>(prompt.size()) + step - 1;
    batch.Add(r, position, {tokens[static_cast<size_t>(r)]});
  }
  return batch;
}

// Request 0 takes the largest, request 1 draws from all, request 2 from few, with a mask.
std::vector<ops::RowDraw> DrawsOf(int32_t step) {
  std::vector<ops::RowDraw> draws(kRequests);
  draws[1] = {.temperature = 3.0f, .position = step};
  draws[2] = {.temperature = 5.0f, .top_p = 0.9f, .top_k = 20, .position = step, .mask = 0};
  for (ops::RowDraw& draw : draws) draw.SetSeed(uint64_t{1} << 40 | 5);
  return draws;
}
const std::vector<uint32_t> kEveryOther(3, 0x55555555u);

program::ExecutorOptions Options() {
  program::ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 64;
  options.max_num_seqs = options.max_num_logits_rows = 4;
  options.block_size = kBlockSize;
  options.num_blocks = 64;
  return options;
}

// The tokens of each step, by the CPU's logits and the host's sampler.
std::vector<Tokens> OnCpu(const std::string& text) {
  const auto cpu = *program::NativeExecutor::Create(*program::Program::Parse(text),
                                                    {.ops = ops::CpuOps()}, Options());
  const ops::RowPasses& passes = ops::ChooseRowPasses({});
  std::vector<ops::Candidate> storage(kVocab);
  std::vector<Tokens> steps;
  for (int32_t i = 0; i <= kDecodes; ++i) {
    const BatchBuilder batch = StepOf(i, i == 0 ? Tokens() : steps.back());
    program::ExecutorOutput output;
    EXPECT_TRUE(cpu->Execute(batch.view(), &output).ok());
    Tokens tokens;
    const std::vector<ops::RowDraw> draws = DrawsOf(i);
    for (size_t r = 0; r < kRequests; ++r) {
      const float* row = output.logits().Row<const float>(static_cast<int64_t>(r));
      std::vector<float> logits(row, row + kVocab);
      for (size_t t = 1; draws[r].mask == 0 && t < kVocab; t += 2) logits[t] = -INFINITY;
      tokens.push_back(
          ops::DrawRow(passes, logits, ops::ArgMax(passes, logits), draws[r], storage));
    }
    steps.push_back(tokens);
  }
  return steps;
}

// Each step reads its tokens from the step before, which draws them and is still in flight.
TEST(Programs, TokensAreDrawnOnTheDevice) {
  const std::string text = TinyLlamaText({.seed = 6});
  const std::vector<Tokens> expected = OnCpu(text);
  const Tokens rows = {program::TokenOfRow(0), program::TokenOfRow(1), program::TokenOfRow(2)};
  for (const int32_t max_graph_tokens : {0, 16}) {
    auto executor = program::DeviceExecutor::Create(
        *program::Program::Parse(text), TheTarget(), Device(), Options(),
        {.max_blocks = kBlocks, .max_graph_tokens = max_graph_tokens, .token_columns = kVocab});
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    std::vector<Tokens> got;
    const auto collect = [&] {
      program::ExecutorOutput output;
      const Status status = (*executor)->Collect(&output);
      EXPECT_TRUE(status.ok()) << status.ToString();
      Tokens& tokens = got.emplace_back();
      for (const ops::RowMaximum& maximum : output.maxima) tokens.push_back(maximum.column);
    };
    for (int32_t i = 0; i <= kDecodes; ++i) {
      const BatchBuilder batch = StepOf(i, rows);
      ops::StepBatch view = batch.view();
      view.argmax_columns = kVocab;
      ASSERT_TRUE((*executor)->Enqueue(view).ok());
      const std::vector<ops::RowDraw> draws = DrawsOf(i);
      ASSERT_TRUE((*executor)->Sample({.rows = draws, .masks = kEveryOther}).ok());
      if (i > 0) collect();
    }
    collect();
    EXPECT_EQ(got, expected) << (max_graph_tokens == 0 ? "kernel by kernel" : "from graphs");
  }
}

}  // namespace
}  // namespace pagemill::sycl
