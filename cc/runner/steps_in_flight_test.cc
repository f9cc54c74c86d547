// Native runner and an executor of several steps in flight: what begins before what is over.
#include "cc/runner/testing/steps_in_flight.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/program/executor.h"
#include "cc/runner/model_runner.h"
#include "cc/sampling/testing/scripted_proposer.h"
#include "cc/step/token_mask.h"
#include "cc/step/token_matcher.h"

namespace pagemill::runner {
namespace {

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

TEST_F(StepsInFlightTest, AStepWhoseTokensCannotBeDrawnFailsWhereItIsCollected) {
  next_sample_ = Internal("lost");
  ASSERT_TRUE(Begin({Start(0, MakeRequest({1, 2}, 1.0f))}).ok());
  ASSERT_TRUE(Begin({GoOn(0, 2), Start(1, MakeRequest({3}))}).ok());
  EXPECT_EQ(runner_->Collect().status().message(), "lost");
  EXPECT_EQ(runner_->Collect()->results[1].sampled_token_ids, Continue({3}, 1));
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

// A matcher that allows one token.
class OnlyToken final : public step::TokenMatcher {
 public:
  explicit OnlyToken(int32_t token_id) : token_id_(token_id) {}
  Status FillMask(std::span<uint32_t> mask) override {
    for (uint32_t& word : mask) word = 0;
    step::AllowToken(mask, token_id_);
    return OkStatus();
  }
  bool Accept(int32_t token_id) override { return token_id == token_id_; }
  void Rollback(int32_t) override {}

 private:
  const int32_t token_id_;
};

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

// Rows behind a draft that is rejected have no log probabilities, though they were scored.
TEST_F(DraftsInFlightTest, LogProbabilitiesAreThoseOfTheTokensThatAreKept) {
  const auto drafted = MakeRequest({1, 2}), other = MakeRequest({3});
  drafted->sampling.logprobs = 1;
  other->sampling.logprobs = 0;
  const std::vector<sampling::RowOutput> expected = Sample(*drafted, 3), beside = Sample(*other, 2);
  ASSERT_TRUE(Begin({Start(0, drafted), Start(1, other)}).ok());
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 2, 2), GoOn(1, 1)}).ok());  // the second is wrong
  EXPECT_TRUE(runner_->Collect().ok());
  const StatusOr<step::StepResult> result = runner_->Collect();
  ASSERT_TRUE(result.ok());
  const std::vector<step::TokenLogprobs>& logprobs = result->results[0].logprobs;
  ASSERT_EQ(logprobs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(logprobs[i].token_id, expected[1 + i].token_id);
    EXPECT_EQ(logprobs[i].logprob, expected[1 + i].logprobs.logprob);
  }
  ASSERT_EQ(result->results[1].logprobs.size(), 1u);
  EXPECT_EQ(result->results[1].logprobs[0].logprob, beside[1].logprobs.logprob);
  EXPECT_EQ(executor_.num_scored, 2 + 4);
}

// Rows behind drafts count these, and later steps those that were accepted.
TEST_F(DraftsInFlightTest, RowsWithPenaltiesAreThoseOfTheExecutor) {
  const auto drafted = MakeRequest({1, 2});
  drafted->sampling.presence_penalty = 1e-4f;  // changes logits, and no tokens
  drafted->sampling.logprobs = 0;
  const std::vector<sampling::RowOutput> expected = Sample(*drafted, 4);
  ASSERT_EQ(Draw(*drafted, 4), Continue({1, 2}, 4));
  std::vector<ops::RowPenalties> penalties;
  std::vector<ops::TokenCount> counts;
  executor_.on_sample = [&](const program::StepDraws& draws) {
    penalties.assign(draws.penalties.begin(), draws.penalties.end());
    counts.assign(draws.counts.begin(), draws.counts.end());
    return OkStatus();
  };
  ASSERT_TRUE(Begin({Start(0, drafted)}).ok());
  ASSERT_TRUE(Begin({GoOnWithDrafts(0, 2, 2)}).ok());  // the second is wrong
  ASSERT_EQ(penalties.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(penalties[static_cast<size_t>(i)].first_draft, 1);
    EXPECT_EQ(penalties[static_cast<size_t>(i)].num_drafts, i);
  }
  ASSERT_TRUE(Begin({GoOn(0, 5)}).ok());
  ASSERT_EQ(penalties.size(), 1u);
  EXPECT_EQ(penalties[0].num_drafts, 0);
  EXPECT_EQ(counts.size(), expected[1].token_id == expected[2].token_id ? 1u : 2u);
  EXPECT_EQ(executor_.num_cleared, 1);
  ExpectResult({expected[0].token_id}, 0);
  ExpectResult({expected[1].token_id, expected[2].token_id}, 0);
  ExpectResult({expected[3].token_id}, 0);
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

// Stages of a pipeline: the host samples each step when it is collected.
class PipelinedTest : public StepsInFlightTest {
 protected:
  PipelinedTest() {
    pipelined_.on_enqueue = executor_.on_enqueue;
    pipelined_.on_collect = executor_.on_collect;
    runner_ = *ModelRunner::Create(&pipelined_, &pool_, SmallLimits());
  }
  ~PipelinedTest() override { runner_.reset(); }  // before its executor

  // As GoOn(), with the token.
  static ScheduledRequest GoOnWith(int32_t slot, int32_t num_computed, int32_t token_id) {
    ScheduledRequest entry = GoOn(slot, num_computed);
    entry.token_ids = {token_id};
    return entry;
  }

  ContextExecutor pipelined_{&model_, 20 * 16, /*max_steps_in_flight=*/2, /*pipelined=*/true};
};

TEST_F(PipelinedTest, StepsThatTheHostSamplesAreInFlightTogether) {
  EXPECT_FALSE(runner_->limits().placeholders);
  EXPECT_EQ(runner_->limits().pipeline_stages, 2);
  const auto drawn = MakeRequest({1, 2}, 2.0f);
  const std::vector<int32_t> expected = Draw(*drawn, 2), greedy = Continue({3}, 2);
  ASSERT_TRUE(Begin({Start(0, drawn)}).ok());
  ASSERT_TRUE(Begin({Start(1, MakeRequest({3}))}).ok());
  EXPECT_EQ(trace_, "enqueue enqueue ");
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{expected[0]});
  ASSERT_TRUE(Begin({GoOnWith(0, 2, expected[0])}).ok());
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{greedy[0]});
  ASSERT_TRUE(Begin({GoOnWith(1, 1, greedy[0])}).ok());
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{expected[1]});
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{greedy[1]});
  EXPECT_EQ(trace_, "enqueue enqueue collect enqueue collect enqueue collect collect ");
}

TEST_F(PipelinedTest, AStepWithMasksIsSampledBeforeTheNextBegins) {
  const auto masked = MakeRequest({1, 2});
  masked->new_token_matcher = [] {
    return StatusOr<std::unique_ptr<step::TokenMatcher>>(std::make_unique<OnlyToken>(7));
  };
  ASSERT_TRUE(Begin({Start(0, masked)}).ok());
  ASSERT_TRUE(Begin({Start(1, MakeRequest({3}))}).ok());
  EXPECT_EQ(trace_, "enqueue collect enqueue ");
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, std::vector{7});
  EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Continue({3}, 1));
}

}  // namespace
}  // namespace pagemill::runner
