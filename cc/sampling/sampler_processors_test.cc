// Requests with a logits processor in Sampler::Run().
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"
#include "cc/step/request.h"

namespace pagemill::sampling {
namespace {

using step::LogitsProcessor;
using step::LogitsRowText;
using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 37;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

std::shared_ptr<const step::Request> MakeRequest(LogitsProcessor processor,
                                                 SamplingParams params = Greedy()) {
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = {1, 2, 3};
  request->sampling = std::move(params);
  request->logits_processor = std::move(processor);
  return request;
}

class SamplerProcessorsTest : public testing::Test {
 protected:
  SamplerProcessorsTest()
      : pool_({.num_threads = 1}), sampler_({.max_num_seqs = 2, .vocab_size = kVocab}, &pool_) {
    row_[8] = 1.0f;
  }

  // What the row becomes in slot 0.
  RowOutput Run(std::vector<uint32_t> mask = {}) {
    const std::vector<LogitsRow> rows = {
        {.index = RequestIndex(0), .logits = row_.data(), .mask = mask}};
    std::vector<RowOutput> out(1);
    sampler_.Run(rows, out);
    return out[0];
  }

  device::ThreadPool pool_;
  Sampler sampler_;
  std::vector<float> row_ = std::vector<float>(kVocab, 0.0f);
};

TEST_F(SamplerProcessorsTest, ChangesLogitsByThePromptAndTheOutputs) {
  // The next token is the sum of all so far.
  const auto sum = [](const LogitsRowText& text, std::span<float> logits) {
    int32_t total = 0;
    for (const int32_t token : text.prompt_token_ids) total += token;
    for (const int32_t token : text.output_token_ids) total += token;
    logits[static_cast<size_t>(total % kVocab)] = 5.0f;
    return OkStatus();
  };
  sampler_.Start(RequestIndex(0), MakeRequest(sum), {});
  EXPECT_EQ(Run().token_id, 6);
  EXPECT_EQ(Run().token_id, 12);
  EXPECT_EQ(Run().token_id, 24);
  // Resumed after preemption, with the outputs that exist.
  const std::vector<int32_t> outputs = {6, 12};
  sampler_.Start(RequestIndex(0), MakeRequest(sum), outputs);
  EXPECT_EQ(Run().token_id, 24);
}

TEST_F(SamplerProcessorsTest, DraftsArePartOfTheOutputsBehindThem) {
  std::vector<std::vector<int32_t>> seen;
  const auto see = [&](const LogitsRowText& text, std::span<float>) {
    seen.emplace_back(text.output_token_ids.begin(), text.output_token_ids.end());
    return OkStatus();
  };
  sampler_.Start(RequestIndex(0), MakeRequest(see), {});
  const std::vector<LogitsRow> rows = {
      {.index = RequestIndex(0), .logits = row_.data(), .draft_token_id = 8},
      {.index = RequestIndex(0), .logits = row_.data(), .draft_token_id = 9},
      {.index = RequestIndex(0), .logits = row_.data()}};
  std::vector<RowOutput> out(rows.size());
  sampler_.Run(rows, out);
  EXPECT_EQ(seen, (std::vector<std::vector<int32_t>>{{}, {8}}));
  EXPECT_EQ(out[2].token_id, -1);  // behind a rejected draft
}

TEST_F(SamplerProcessorsTest, MasksAndMinTokensHoldBehindIt) {
  const auto likes_8 = [](const LogitsRowText&, std::span<float> logits) {
    logits[8] = 100.0f, logits[9] = 50.0f, logits[10] = 25.0f;
    return OkStatus();
  };
  SamplingParams params = Greedy();
  params.min_tokens = 1;
  params.eos_token_ids = {9};
  sampler_.Start(RequestIndex(0), MakeRequest(likes_8, params), {}, /*masked=*/true);
  const std::vector<uint32_t> not_8 = {~(1u << 8), ~0u};
  EXPECT_EQ(Run(not_8).token_id, 10);
  EXPECT_EQ(Run(not_8).token_id, 9);
}

TEST_F(SamplerProcessorsTest, LogprobsAreOfTheModelUnlessTheyAreProcessed) {
  const auto only_3 = [](const LogitsRowText&, std::span<float> logits) {
    std::ranges::fill(logits, -kInfinity);
    logits[3] = 0.0f;
    return OkStatus();
  };
  SamplingParams params = Greedy();
  params.logprobs = 1;
  sampler_.Start(RequestIndex(0), MakeRequest(only_3, params), {});
  EXPECT_FALSE(sampler_.NeedsOnlyAdjustedToken(RequestIndex(0)));
  const RowOutput raw = Run();
  EXPECT_EQ(raw.token_id, 3);
  EXPECT_NEAR(raw.logprobs.logprob, -std::log(kVocab - 1 + std::exp(1.0)), 1e-5);
  params.logprobs_mode = SamplingParams::kProcessedLogprobs;
  sampler_.Start(RequestIndex(0), MakeRequest(only_3, params), {});
  EXPECT_NEAR(Run().logprobs.logprob, 0.0, 1e-6);
}

TEST_F(SamplerProcessorsTest, AFailureEndsItsRequestOnly) {
  const auto failure = [&](LogitsProcessor processor) {
    sampler_.Start(RequestIndex(0), MakeRequest(std::move(processor)), {});
    sampler_.Start(RequestIndex(1), MakeRequest({}), {});
    const std::vector<LogitsRow> rows = {{.index = RequestIndex(0), .logits = row_.data()},
                                         {.index = RequestIndex(1), .logits = row_.data()}};
    std::vector<RowOutput> out(rows.size());
    sampler_.Run(rows, out);
    EXPECT_EQ(out[1].token_id, 8);
    EXPECT_EQ(out[0].token_id, -1);
    return out[0].failure;
  };
  const auto writes = [](float value) {
    return [value](const LogitsRowText&, std::span<float> logits) {
      logits[5] = value;
      return OkStatus();
    };
  };
  const auto fails = [](const LogitsRowText&, std::span<float>) { return Internal("oh"); };
  EXPECT_EQ(failure(fails).message(), "oh");
  for (const float value : {kInfinity, std::nanf("")}) {
    EXPECT_NE(failure(writes(value)).message().find("gave token 5"), std::string::npos);
  }
  const auto nothing = [](const LogitsRowText&, std::span<float> logits) {
    std::ranges::fill(logits, -kInfinity);
    return OkStatus();
  };
  EXPECT_EQ(failure(nothing).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::sampling
