// Several steps in flight on a device: engine, native runner and device executor together.
#include "tests/generation/device_generation.h"

#include <gtest/gtest.h>

#include <optional>

#include "cc/program/testing/tiny_llama.h"
#include "cc/step/sampling_params.h"
#include "cc/tensor/dtype.h"

namespace pagemill::testing {
namespace {

// 16 tokens each, in two groups: two requests may use them all.
constexpr int32_t kFewBlocks = 16;

// Of log probabilities: kernels of the CPU and references sum in different orders.
constexpr float kBound = 1e-4f;

Generated MustGenerate(const std::string& text, const std::vector<step::Request>& requests,
                       const DeviceRun& run) {
  StatusOr<Generated> generated = Generate(text, requests, run);
  EXPECT_TRUE(generated.ok()) << generated.status().ToString();
  return generated.ok() ? *std::move(generated) : Generated();
}

class StepsOnADevice : public ::testing::TestWithParam<DType> {};

TEST_P(StepsOnADevice, GiveTheTokensOfOne) {
  uint64_t stopped = 0, preempted = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    // Layers with a window, and without: two block tables.
    const std::string text = program::testing::TinyLlamaText({.seed = seed, .window = 8});
    const std::vector<step::Request> requests = GreedyRequests(seed);
    DeviceRun run = {.act = GetParam(), .steps_in_flight = 0, .num_blocks = kFewBlocks};
    const Generated cpu = MustGenerate(text, requests, run);
    for (const bool graphs : {false, true}) {
      run.graphs = graphs;
      run.steps_in_flight = 1;
      const Generated one = MustGenerate(text, requests, run);
      run.steps_in_flight = 2;
      const Generated two = MustGenerate(text, requests, run);
      EXPECT_EQ(one.outputs, cpu.outputs);
      EXPECT_EQ(two.outputs, cpu.outputs);
      EXPECT_EQ(one.num_overlapping_steps, 0);
      EXPECT_GT(two.num_overlapping_steps, two.num_steps / 2) << "of " << two.num_steps;
      EXPECT_EQ(two.num_replays > 0, graphs);
      stopped += two.stats.finished_stop;
      preempted += two.stats.num_preemptions;
    }
  }
  EXPECT_GT(stopped, 0u);
  EXPECT_GT(preempted, 0u);
}

TEST_P(StepsOnADevice, GiveTheTokensOfOneWithDrafts) {
  uint64_t accepted = 0, rejected = 0, preempted = 0;
  int64_t penalized_behind_drafts = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    const std::string text = program::testing::TinyLlamaText({.seed = seed, .window = 8});
    for (const bool sampled : {false, true}) {
      const std::vector<step::Request> requests =
          sampled ? SampledRequests(seed) : GreedyRequests(seed);
      DeviceRun run = {.act = GetParam(), .steps_in_flight = 0, .num_blocks = kFewBlocks};
      const Generated cpu = MustGenerate(text, requests, run);
      run.drafts = true;
      for (const int32_t steps_in_flight : {0, 1, 2, 4}) {
        run.steps_in_flight = steps_in_flight;
        run.graphs = steps_in_flight == 2;
        const Generated drafted = MustGenerate(text, requests, run);
        EXPECT_EQ(drafted.outputs, cpu.outputs) << steps_in_flight << " steps in flight";
        if (sampled) ExpectLogprobs(drafted, cpu, kBound);
        EXPECT_EQ(drafted.num_overlapping_steps > 0, steps_in_flight > 1);
        const bool on_device = sampled && steps_in_flight > 0;
        EXPECT_EQ(drafted.num_sampled_steps > 0, on_device);
        if (on_device) penalized_behind_drafts += drafted.num_penalized_behind_drafts;
        accepted += drafted.stats.accepted_draft_tokens;
        rejected += drafted.stats.draft_tokens - drafted.stats.accepted_draft_tokens;
        preempted += drafted.stats.num_preemptions;
      }
    }
  }
  EXPECT_GT(accepted, 50u);
  EXPECT_GT(penalized_behind_drafts, 50);
  EXPECT_GT(rejected, 20u);
  EXPECT_GT(preempted, 0u);
}

// Greedy and sampled requests together: the device draws the same tokens as the host does on the
// CPU, and steps overlap as with greedy requests.
TEST_P(StepsOnADevice, GiveTheTokensOfOneToSampledRequests) {
  uint64_t preempted = 0;
  for (const uint64_t seed : {4, 5}) {
    const std::string text = program::testing::TinyLlamaText({.seed = seed, .window = 8});
    const std::vector<step::Request> requests = SampledRequests(seed);
    DeviceRun run = {.act = GetParam(), .steps_in_flight = 0, .num_blocks = kFewBlocks};
    const Generated cpu = MustGenerate(text, requests, run);
    EXPECT_EQ(cpu.num_sampled_steps, 0);
    EXPECT_NE(cpu.outputs, MustGenerate(text, GreedyRequests(seed), run).outputs);
    std::optional<Generated> first;
    for (const bool graphs : {false, true}) {
      for (const int32_t steps_in_flight : {1, 2, 3}) {
        run.graphs = graphs;
        run.steps_in_flight = steps_in_flight;
        const Generated got = MustGenerate(text, requests, run);
        EXPECT_EQ(got.outputs, cpu.outputs);
        EXPECT_GT(got.num_sampled_steps, got.num_steps / 2);
        EXPECT_EQ(got.num_overlapping_steps > got.num_steps / 2, steps_in_flight > 1)
            << got.num_overlapping_steps << " of " << got.num_steps;
        EXPECT_EQ(got.num_replays > 0, graphs);
        preempted += got.stats.num_preemptions;
        ExpectLogprobs(got, cpu, kBound);
        if (!first) first = got;
        ExpectLogprobs(got, *first, 0);
      }
    }
  }
  EXPECT_GT(preempted, 0u) << "requests with penalties are resumed";
}

// Every third request needs the log probabilities of all tokens, so the host samples its steps.
TEST_P(StepsOnADevice, GiveTheTokensOfOneToWhatTheHostSamples) {
  const std::string text = program::testing::TinyLlamaText({.seed = 4});
  std::vector<step::Request> requests = SampledRequests(4);
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].sampling.logprobs = step::SamplingParams::kAllLogprobs;
  }
  const Generated cpu = MustGenerate(text, requests, {.act = GetParam(), .steps_in_flight = 0});
  for (const bool graphs : {false, true}) {
    const Generated two =
        MustGenerate(text, requests, {.act = GetParam(), .steps_in_flight = 2, .graphs = graphs});
    EXPECT_EQ(two.outputs, cpu.outputs);
    EXPECT_GT(two.num_sampled_steps, 0);
    EXPECT_LT(two.num_sampled_steps, two.num_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StepsOnADevice, ::testing::Values(DType::kF32, DType::kBF16));

}  // namespace
}  // namespace pagemill::testing
