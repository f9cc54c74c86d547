// Native runner and an executor of several steps in flight, plan by plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/program/executor.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/hash_model.h"
#include "cc/sampling/testing/scripted_proposer.h"
#include "cc/step/token_mask.h"
#include "cc/step/token_matcher.h"

namespace pagemill::runner {
namespace {

using step::BlockId;
using step::RequestIndex;
using step::ScheduledRequest;

constexpr int32_t kVocab = 11;

engine::RunnerLimits SmallLimits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 32;
  limits.max_num_seqs = 4;
  limits.max_num_logits_rows = 16;
  limits.max_model_len = 16;
  limits.vocab_size = kVocab;
  limits.num_blocks = 20;
  limits.block_size = 16;
  return limits;
}

std::shared_ptr<step::Request> MakeRequest(std::vector<int32_t> prompt, float temperature = 0) {
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = std::move(prompt);
  request->sampling.temperature = temperature;
  request->sampling.seed = 31;
  return request;
}

// One that needs the host: for its log probabilities.
std::shared_ptr<step::Request> MakeHostRequest(std::vector<int32_t> prompt) {
  auto request = MakeRequest(std::move(prompt), 1.0f);
  request->sampling.logprobs = 0;
  return request;
}

ScheduledRequest Start(int32_t slot, const std::shared_ptr<step::Request>& request) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.start = request;
  entry.token_ids = request->prompt_token_ids.ToVector();
  entry.new_block_ids = {{BlockId(1 + slot)}};
  entry.sample = true;
  return entry;
}

// The token behind `num_computed` others, which the step before samples.
ScheduledRequest GoOn(int32_t slot, int32_t num_computed) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.num_computed_tokens = num_computed;
  entry.token_ids = {step::kPlaceholderTokenId};
  entry.sample = true;
  return entry;
}

class StepsInFlightTest : public ::testing::Test {
 protected:
  StepsInFlightTest() {
    executor_.on_enqueue = [this](const ops::StepBatch&) {
      trace_ += "enqueue ";
      return OkStatus();
    };
    executor_.on_collect = [this] {
      trace_ += "collect ";
      return std::exchange(next_collect_, OkStatus());
    };
    executor_.on_sample = [this](const program::StepDraws&) {
      trace_ += "sample ";
      return std::exchange(next_sample_, OkStatus());
    };
    runner_ = *ModelRunner::Create(&executor_, &pool_, SmallLimits());
  }

  Status Begin(std::vector<ScheduledRequest> entries, std::vector<RequestIndex> released = {}) {
    step::StepPlan plan;
    plan.step_id = ++step_id_;
    plan.scheduled = std::move(entries);
    plan.released = std::move(released);
    PAGEMILL_RETURN_IF_ERROR(runner_->Execute(plan));
    return runner_->Sample();
  }

  // The greedy tokens behind a text.
  std::vector<int32_t> Continue(std::vector<int32_t> text, size_t count) const {
    std::vector<int32_t> tokens;
    while (tokens.size() < count) {
      const std::vector<float> logits = model_.Logits(text);
      text.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      tokens.push_back(text.back());
    }
    return tokens;
  }

  const sampling::HashModel model_{{.vocab_size = kVocab}};
  ContextExecutor executor_{&model_, 20 * 16, /*max_steps_in_flight=*/2};
  mutable device::ThreadPool pool_{{.num_threads = 1}};
  std::unique_ptr<ModelRunner> runner_;
  // What a host draws behind a text.
  std::vector<int32_t> Draw(const step::Request& request, size_t count) const {
    sampling::Sampler sampler(
        {.max_num_seqs = 1, .vocab_size = kVocab, .capabilities = device::DetectCapabilities()},
        &pool_);
    sampler.Start(RequestIndex(0), std::make_shared<step::Request>(request), {});
    std::vector<int32_t> text = request.prompt_token_ids.ToVector(), tokens;
    while (tokens.size() < count) {
      const std::vector<float> logits = model_.Logits(text);
      const sampling::LogitsRow row = {.index = RequestIndex(0), .logits = logits.data()};
      sampling::RowOutput output;
      sampler.Run({&row, 1}, {&output, 1});
      text.push_back(output.token_id);
      tokens.push_back(output.token_id);
    }
    return tokens;
  }

  Status next_collect_, next_sample_;
  std::string trace_;
  uint64_t step_id_ = 0;
};

TEST_F(StepsInFlightTest, AGreedyStepBeginsBeforeTheOneBeforeItIsOver) {
  EXPECT_TRUE(runner_->limits().placeholders);
  const std::vector<int32_t> expected = Continue({1, 2}, 4);
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}))}).ok());
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Begin({GoOn(0, 2 + i)}).ok());
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{expected[static_cast<size_t>(i)]});
  }
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{expected[3]});
  EXPECT_EQ(runner_->Collect().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(trace_, "enqueue enqueue collect enqueue collect enqueue collect collect ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 3);
}

// The executor draws tokens behind the forward pass, so that the next step may begin; both requests
// have other tokens than the most likely ones, and those that a host draws.
TEST_F(StepsInFlightTest, ADrawnStepBeginsBeforeTheOneBeforeItIsOver) {
  const auto first = MakeRequest({1, 2}, 2.0f), second = MakeRequest({3}, 1.5f);
  second->sampling.top_k = 7;
  second->sampling.top_p = 0.9f;
  const std::vector<int32_t> expected[] = {Draw(*first, 4), Draw(*second, 4)};
  EXPECT_NE(expected[0], Continue({1, 2}, 4));
  EXPECT_NE(expected[1], Continue({3}, 4));
  ASSERT_TRUE(Begin({Start(0, first), Start(1, second)}).ok());
  for (int32_t i = 0; i < 4; ++i) {
    if (i < 3) {
      ASSERT_TRUE(Begin({GoOn(0, 2 + i), GoOn(1, 1 + i)}).ok());
    }
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(result->results[r].sampled_token_ids,
                std::vector{expected[r][static_cast<size_t>(i)]});
    }
  }
  EXPECT_EQ(trace_,
            "enqueue sample enqueue sample collect enqueue sample collect enqueue sample collect "
            "collect ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 6);
  EXPECT_EQ(executor_.num_drawn, 8);
}

TEST_F(StepsInFlightTest, GreedyRequestsKeepTheirTokensBesideDrawnOnes) {
  const auto drawn = MakeRequest({3}, 2.0f);
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2})), Start(1, drawn)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), GoOn(1, 1)}).ok());
  EXPECT_EQ(trace_, "enqueue sample enqueue sample ");
  for (size_t i = 0; i < 2; ++i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{Continue({1, 2}, 2)[i]});
    EXPECT_EQ(result->results[1].sampled_token_ids, std::vector{Draw(*drawn, 2)[i]});
  }
  EXPECT_EQ(executor_.num_drawn, 2);
}

// One whose logits the executor adjusts.
std::shared_ptr<step::Request> MakeAdjustedRequest(std::vector<int32_t> prompt,
                                                   float temperature) {
  auto request = MakeRequest(std::move(prompt), temperature);
  request->sampling.repetition_penalty = 2.0f;
  request->sampling.frequency_penalty = 0.7f;
  request->sampling.logit_bias = {{4, 1.0f}};
  request->sampling.min_tokens = 2;
  request->sampling.eos_token_ids = {7};
  return request;
}

// Penalties count tokens that the host does not know yet.
TEST_F(StepsInFlightTest, AnAdjustedStepBeginsBeforeTheOneBeforeItIsOver) {
  const auto greedy = MakeAdjustedRequest({1, 2, 1}, 0), drawn = MakeAdjustedRequest({3}, 1.5f);
  const auto plain = MakeRequest({4});
  constexpr size_t kSteps = 6;
  const std::vector<int32_t> expected[] = {Draw(*greedy, kSteps), Draw(*drawn, kSteps),
                                           Continue({4}, kSteps)};
  EXPECT_NE(expected[0], Continue({1, 2, 1}, kSteps));
  ASSERT_TRUE(Begin({Start(0, greedy), Start(1, drawn), Start(2, plain)}).ok());
  for (size_t i = 0; i < kSteps; ++i) {
    const auto n = static_cast<int32_t>(i);
    if (i + 1 < kSteps) {
      ASSERT_TRUE(Begin({GoOn(2, 1 + n), GoOn(0, 3 + n), GoOn(1, 1 + n)}).ok());
    }
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    for (const step::RequestResult& request : result->results) {
      const auto slot = static_cast<size_t>(request.index.value());
      EXPECT_EQ(request.sampled_token_ids, std::vector{expected[slot][i]}) << slot << ", " << i;
    }
  }
  EXPECT_EQ(executor_.num_tokens_of_rows, 3 * static_cast<int64_t>(kSteps - 1));
  EXPECT_EQ(executor_.num_cleared, 2) << "each once, at its start";
  // Two rows with penalties and a bias each, and what min_tokens exclude in two steps.
  EXPECT_EQ(executor_.num_adjusted, 2 * (2 * static_cast<int64_t>(kSteps) + 2));
  runner_->CheckIntegrity();
}

// Behind steps that the host samples, the executor counts anew; a request that takes a slot does
// not inherit what was counted there.
TEST_F(StepsInFlightTest, AdjustedRequestsGoOnBehindStepsThatTheHostSamples) {
  const auto adjusted = MakeAdjustedRequest({1, 2}, 1.0f), other = MakeAdjustedRequest({5}, 1.0f);
  const std::vector<int32_t> expected = Draw(*adjusted, 6);
  const auto result_of = [&](size_t i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{expected[i]}) << i;
  };
  ASSERT_TRUE(Begin({Start(0, adjusted)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeHostRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 3), GoOn(1, 1)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 4)}, {RequestIndex(1)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 5), Start(1, other)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 6), GoOn(1, 1)}).ok());
  for (size_t i = 0; i < 4; ++i) result_of(i);
  StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{expected[4]});
  EXPECT_EQ(result->results[1].sampled_token_ids, Draw(*other, 1));
  ASSERT_TRUE(Begin({Start(0, other)}, {RequestIndex(0)}).ok());
  result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[1].sampled_token_ids, std::vector{Draw(*other, 2).back()});
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Draw(*other, 1));
  EXPECT_EQ(executor_.num_cleared, 4);
}

// Allows tokens that are even or odd, in turns, beginning with even ones; `last` allows nothing
// behind so many.
class InTurns final : public step::TokenMatcher {
 public:
  explicit InTurns(int32_t last) : last_(last) {}
  Status FillMask(std::span<uint32_t> mask) override {
    const int32_t parity = num_accepted_ % 2;
    for (uint32_t& word : mask) word = 0;
    for (int32_t t = parity; num_accepted_ < last_ && t < kVocab; t += 2) step::AllowToken(mask, t);
    return OkStatus();
  }
  bool Accept(int32_t token_id) override {
    if (token_id % 2 != num_accepted_ % 2) return false;
    ++num_accepted_;
    return true;
  }
  void Rollback(int32_t num_tokens) override { num_accepted_ -= num_tokens; }

 private:
  const int32_t last_;
  int32_t num_accepted_ = 0;
};

std::shared_ptr<step::Request> MakeMaskedRequest(std::vector<int32_t> prompt, float temperature,
                                                 int32_t last = 100) {
  auto request = MakeRequest(std::move(prompt), temperature);
  request->new_token_matcher = [last] {
    return StatusOr<std::unique_ptr<step::TokenMatcher>>(std::make_unique<InTurns>(last));
  };
  return request;
}

// Masks want the token before, so a step is collected before the next is sampled: but behind the
// beginning of its forward pass.
TEST_F(StepsInFlightTest, AMaskedStepBeginsBeforeTheOneBeforeItIsOver) {
  ASSERT_TRUE(Begin({Start(0, MakeMaskedRequest({1, 2}, 0)), Start(1, MakeMaskedRequest({3}, 2.0f)),
                     Start(2, MakeRequest({4}))})
                  .ok());
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Begin({GoOn(0, 2 + i), GoOn(1, 1 + i), GoOn(2, 1 + i)}).ok());
  }
  EXPECT_EQ(trace_,
            "enqueue sample enqueue collect sample enqueue collect sample enqueue collect sample ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 9);
  EXPECT_EQ(executor_.num_masked, 8);
  std::vector<int32_t> text = {1, 2};
  for (int32_t i = 0; i < 4; ++i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    std::vector<float> logits = model_.Logits(text);
    for (size_t t = 0; t < logits.size(); ++t) {
      if (static_cast<int32_t>(t) % 2 != i % 2) logits[t] = -1e9f;
    }
    text.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    EXPECT_EQ(result->results[0].sampled_token_ids, std::vector{text.back()});
    ASSERT_EQ(result->results[1].sampled_token_ids.size(), 1u);
    EXPECT_EQ(result->results[1].sampled_token_ids[0] % 2, i % 2);
    EXPECT_EQ(result->results[2].sampled_token_ids,
              std::vector{Continue({4}, 4)[static_cast<size_t>(i)]});
  }
}

TEST_F(StepsInFlightTest, AMaskThatAllowsNothingFailsItsRequest) {
  const auto masked = MakeMaskedRequest({1, 2}, 1.0f, /*last=*/1);
  ASSERT_TRUE(Begin({Start(0, masked), Start(1, MakeRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), GoOn(1, 1)}).ok());
  EXPECT_TRUE(runner_->Collect()->results[0].failure.ok());
  const StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->results[0].failure.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result->results[1].sampled_token_ids, std::vector{Continue({3}, 2)[1]});
}

TEST_F(StepsInFlightTest, AStepWhoseTokensCannotBeDrawnFailsWhereItIsCollected) {
  next_sample_ = Internal("lost");
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}, 1.0f))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeRequest({3}))}).ok());
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  EXPECT_EQ(runner_->Collect()->results[1].sampled_token_ids, Continue({3}, 1));
}

TEST_F(StepsInFlightTest, ASlotCountsAnewBehindAStepWhoseTokensCouldNotBeDrawn) {
  const auto lost = MakeAdjustedRequest({1, 2}, 1.0f), next = MakeAdjustedRequest({3}, 1.0f);
  const std::vector<int32_t> expected = Draw(*next, 2);
  ASSERT_TRUE(Begin({Start(0, lost)}).ok());
  next_sample_ = Internal("lost");
  ASSERT_TRUE(Begin({GoOn(0, 2)}).ok());
  ASSERT_TRUE(Begin({Start(0, next)}, {RequestIndex(0)}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 1)}).ok());
  EXPECT_TRUE(runner_->Collect().ok());
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  for (const int32_t token : expected) {
    EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{token});
  }
}

TEST_F(StepsInFlightTest, AStepThatTheHostSamplesIsOverBeforeTheNext) {
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2})), Start(1, MakeHostRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), GoOn(1, 1)}).ok());
  EXPECT_EQ(trace_, "enqueue collect enqueue ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 0);
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Continue({1, 2}, 1));
}

TEST_F(StepsInFlightTest, AStepThatFailsLeavesTheNextOne) {
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeRequest({3, 4, 5}))}).ok());
  next_collect_ = Internal("lost");
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  // Its request is gone; another takes the slot while the second step is in flight.
  ASSERT_TRUE(Begin({GoOn(1, 3), Start(0, MakeRequest({6}))}, {RequestIndex(0)}).ok());
  StatusOr<step::StepResult> second = runner_->Collect();
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->results[0].sampled_token_ids.empty()) << "its request is gone";
  const std::vector<int32_t> expected = Continue({3, 4, 5}, 2);
  EXPECT_EQ(second->results[1].sampled_token_ids, std::vector{expected[0]});
  const StatusOr<step::StepResult> third = runner_->Collect();
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->results[0].sampled_token_ids, std::vector{expected[1]});
  EXPECT_EQ(third->results[1].sampled_token_ids, Continue({6}, 1));
  runner_->CheckIntegrity();
}

TEST_F(StepsInFlightTest, AFailedHostSampledStepFailsWhereItIsCollected) {
  ASSERT_TRUE(Begin({Start(0, MakeHostRequest({1, 2}))}).ok());
  next_collect_ = Internal("lost");
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeRequest({3}))}).ok()) << "which finishes the first";
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  EXPECT_EQ(runner_->Collect()->results[1].sampled_token_ids, Continue({3}, 1));
}

TEST_F(StepsInFlightTest, ATokenOfAnEarlierStepThanTheLastIsWaitedFor) {
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}))}).ok());
  ASSERT_TRUE(Begin({Start(1, MakeRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2)}).ok());
  EXPECT_EQ(executor_.num_tokens_of_rows, 0);
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Continue({1, 2}, 1));
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Continue({3}, 1));
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids,
            std::vector{Continue({1, 2}, 2).back()});
}

TEST_F(StepsInFlightTest, RefusesAPlaceholderWhereNoTokenWasSampled) {
  ScheduledRequest part = Start(0, MakeRequest({1, 2, 3}));
  part.token_ids.pop_back();
  part.sample = false;
  ASSERT_TRUE(Begin({part}).ok());
  const Status status = Begin({GoOn(0, 2)});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("a placeholder where no token was sampled"), std::string::npos);
  EXPECT_TRUE(runner_->Collect().ok()) << "the step before is not affected";
}

// As GoOn(), with places for so many drafts.
ScheduledRequest GoOnWithDrafts(int32_t slot, int32_t num_computed, size_t num_drafts) {
  ScheduledRequest entry = GoOn(slot, num_computed);
  entry.draft_token_ids.assign(num_drafts, step::kPlaceholderTokenId);
  return entry;
}

class DraftsInFlightTest : public StepsInFlightTest {
 protected:
  // Guesses are right, except behind four tokens; behind six or more there is none.
  DraftsInFlightTest() {
    const auto guess = [this](std::span<const int32_t> text) {
      if (text.size() >= 6) return -1;
      const int32_t token = Continue({text.begin(), text.end()}, 1)[0];
      return text.size() == 4 ? (token + 1) % kVocab : token;
    };
    engine::RunnerLimits limits = SmallLimits();
    limits.max_draft_tokens = 2;
    runner_ = *ModelRunner::Create(
        &executor_, &pool_, limits,
        {.proposer = std::make_unique<sampling::ScriptedProposer>(guess), .clock = &no_time_});
  }

  void ExpectResult(const std::vector<int32_t>& sampled, int32_t num_missing_drafts) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->results[0].sampled_token_ids, sampled);
    EXPECT_EQ(result->results[0].num_missing_drafts, num_missing_drafts);
  }

  const FakeClock no_time_;
};

TEST_F(DraftsInFlightTest, PlansThatCountOnAllDraftsRunWhereTheAcceptedEnd) {
  const std::vector<int32_t> e = Continue({1, 2}, 7);
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}))}).ok());
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 2, 2)}).ok());  // the second is wrong
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 5, 2)}).ok());  // from 4 on; the second is missing
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 8, 2)}).ok());  // from 6 on, without drafts
  EXPECT_EQ(trace_, "enqueue collect enqueue collect enqueue collect enqueue ");
  ASSERT_TRUE(Begin({GoOn(0, 11)}).ok());  // from 7 on; the token is not known
  EXPECT_EQ(trace_, "enqueue collect enqueue collect enqueue collect enqueue enqueue ");
  EXPECT_EQ(executor_.num_tokens_of_rows, 1);
  ExpectResult({e[0]}, 0);
  ExpectResult({e[1], e[2]}, 0);
  ExpectResult({e[3], e[4]}, 1);
  ExpectResult({e[5]}, 2);
  ExpectResult({e[6]}, 0);
  const int32_t wrong = (e[2] + 1) % kVocab;
  EXPECT_EQ(executor_.token_ids,
            (std::vector<int32_t>{1, 2, e[0], e[1], wrong, e[2], e[3], e[4], e[5]}));
  runner_->CheckIntegrity();
}

TEST_F(DraftsInFlightTest, AnotherRequestDoesNotWaitForDraftsThatItDoesNotHave) {
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2})), Start(1, MakeRequest({3}))}).ok());
  ASSERT_TRUE(Begin({GoOn(1, 1), GoOn(0, 2)}).ok());
  EXPECT_EQ(trace_, "enqueue enqueue ");
  // Its token becomes known while the drafts of the other are waited for.
  ASSERT_TRUE(Begin({GoOn(1, 2), GoOnWithDrafts(0, 3, 1)}).ok());
  EXPECT_EQ(trace_, "enqueue enqueue collect collect enqueue ");
  const std::vector<int32_t> expected = Continue({1, 2}, 4), other = Continue({3}, 3);
  for (size_t i = 0; i < 3; ++i) {
    const StatusOr<step::StepResult> result = runner_->Collect();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->results[i == 0 ? 1 : 0].sampled_token_ids, std::vector{other[i]});
    EXPECT_EQ(result->results[i == 0 ? 0 : 1].sampled_token_ids[0], expected[i]);
  }
}

TEST_F(DraftsInFlightTest, AStepWithDraftsThatFailsLeavesTheNextOne) {
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}))}).ok());
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 2, 2)}).ok());
  next_collect_ = Internal("lost");
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 5, 2), Start(1, MakeRequest({3}))}).ok());
  EXPECT_TRUE(runner_->Collect().ok());
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  EXPECT_EQ(runner_->Collect()->results[1].sampled_token_ids, Continue({3}, 1));
  runner_->CheckIntegrity();
}

}  // namespace
}  // namespace pagemill::runner
