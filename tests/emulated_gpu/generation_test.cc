// Requests through engine and native runner on the emulated GPU: the tokens of the CPU, chosen on the
// GPU, with two steps in flight and graphs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/program/testing/tiny_llama.h"
#include "cuda/testing/gpu_under_test.h"
#include "tests/generation/device_generation.h"

namespace pagemill::testing {
namespace {

void ExpectTokensOfTheCpu(const std::vector<step::Request>& requests) {
  const std::string text = program::testing::TinyLlamaText({.seed = 6, .layers = 1, .hidden = 32});
  const gpu::GpuUnderTest gpu;
  const StatusOr<Generated> cpu = Generate(text, requests, {.steps_in_flight = 0});
  ASSERT_TRUE(cpu.ok()) << cpu.status().ToString();
  const StatusOr<Generated> got = Generate(
      text, requests, {.steps_in_flight = 2, .graphs = true, .device = &gpu.under_test});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->outputs, cpu->outputs);
  if (!cpu->logprobs.empty()) ExpectLogprobs(*got, *cpu, /*bound=*/1e-4f);
  EXPECT_GT(got->num_replays, 0);
  EXPECT_GT(got->num_overlapping_steps, got->num_steps / 2);
}

TEST(GpuGeneration, GreedyRequestsGetTheTokensOfTheCpu) {
  ExpectTokensOfTheCpu(GreedyRequests(/*seed=*/5));
}

// Draws are a function of the seed and the logits, which differ in the last bits, and so do log
// probabilities.
TEST(GpuGeneration, SampledRequestsGetTheTokensOfTheCpu) {
  ExpectTokensOfTheCpu(SampledRequests(/*seed=*/5));
}

}  // namespace
}  // namespace pagemill::testing
