#include "cc/scheduler/internal/token_budget.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler::internal {
namespace {

RequestState MakeState(int32_t prompt_size, int32_t max_tokens = 4,
                       std::vector<step::MediaItem> media = {}) {
  step::Request request;
  request.prompt_token_ids = std::vector<int32_t>(static_cast<size_t>(prompt_size), 1);
  request.sampling.max_tokens = max_tokens;
  request.media = std::move(media);
  return RequestState(std::move(request));
}

class TokenBudgetTest : public testing::Test {
 protected:
  TokenBudgetTest() {
    options_.max_num_logits_rows = 2;
    options_.max_partial_prefills = 2;
    options_.max_long_partial_prefills = 1;
    options_.long_prefill_token_threshold = 10;
    encoder_.StartStep();
  }
  void StartStep(int32_t num_tokens, int32_t num_running, int32_t num_waiting) {
    budget_.StartStep({num_tokens, /*num_prefill_tokens=*/1000, num_running, num_waiting});
  }
  void Take(RequestState* request, int32_t num_tokens, bool starts) {
    request->num_scheduled_tokens += num_tokens;
    const bool sample = request->num_scheduled_tokens == request->num_tokens();
    budget_.Take(request, {.num_tokens = num_tokens, .starts = starts, .sample = sample});
  }

  SchedulerOptions options_;
  EncoderCache encoder_{{.max_encoder_tokens = 4, .encoder_cache_tokens = 8}};
  TokenBudget budget_{options_, /*max_request_tokens=*/100, &encoder_};
};

TEST_F(TokenBudgetTest, PromptsShareWhatDecodingRequestsLeave) {
  RequestState a = MakeState(30), b = MakeState(9);
  StartStep(17, /*num_running=*/1, /*num_waiting=*/2);  // one decodes
  EXPECT_EQ(budget_.NumTokens(a), 8);                   // half of 16
  Take(&a, 8, true);
  EXPECT_EQ(budget_.NumTokens(b), 8);
  Take(&b, 8, true);
  EXPECT_EQ(budget_.tokens(), 1);
  EXPECT_EQ(budget_.num_partial(), 2);
  EXPECT_EQ(budget_.num_long(), 1);
  StartStep(17, 3, 0);
  EXPECT_EQ(budget_.NumTokens(b), 1);
  Take(&b, 1, false);
  EXPECT_EQ(budget_.num_partial(), 1);
  EXPECT_EQ(budget_.NumTokens(a), 10) << "the threshold of long prompts";
}

TEST_F(TokenBudgetTest, OfLongPromptsAFewStartPartly) {
  RequestState first = MakeState(30), second = MakeState(30), shorter = MakeState(10);
  EXPECT_EQ(budget_.MayStartPartly(first), TokenBudget::PartialStart::kNow);
  budget_.SetPrefillsPartly(&first, true);
  EXPECT_EQ(budget_.MayStartPartly(second), TokenBudget::PartialStart::kTooLong);
  EXPECT_EQ(budget_.MayStartPartly(shorter), TokenBudget::PartialStart::kNow);
  budget_.SetPrefillsPartly(&shorter, true);
  EXPECT_EQ(budget_.MayStartPartly(shorter), TokenBudget::PartialStart::kLater);
  budget_.SetPrefillsPartly(&first, false);
  EXPECT_TRUE(budget_.MayStartLong());
}

TEST_F(TokenBudgetTest, WithoutARowAllButTheLastTokenRuns) {
  StartStep(100, 0, 3);
  RequestState a = MakeState(2), b = MakeState(3), c = MakeState(4);
  Take(&a, 2, true);
  Take(&b, 3, true);
  EXPECT_EQ(budget_.rows(), 0);
  EXPECT_EQ(budget_.NumTokens(c), 3);
}

TEST_F(TokenBudgetTest, OfPipelineStagesEachTakesItsPartOfTheRequests) {
  options_.pipeline_stages = 2;
  options_.max_partial_prefills = 0;
  options_.max_num_logits_rows = 8;
  budget_.StartStep({.num_tokens = 100,
                     .num_prefill_tokens = 1000,
                     .num_running = 1,
                     .num_waiting = 9,
                     .num_starting = 2});  // three: two and one
  RequestState a = MakeState(2), b = MakeState(3), c = MakeState(4), longer = MakeState(200);
  Take(&a, 2, true);
  EXPECT_EQ(budget_.NumTokens(b), 3);
  Take(&longer, 50, true);
  EXPECT_EQ(budget_.NumTokens(b), 3) << "a prompt in parts may be in several steps at a time";
  Take(&b, 3, true);
  EXPECT_EQ(budget_.NumTokens(c), 0);
  EXPECT_EQ(budget_.NumTokens(longer), 10) << "the threshold of long prompts";
}

TEST_F(TokenBudgetTest, TokensInFlightAreReachableUnlessTheRequestMayEndByThem) {
  options_.decode_ahead = true;
  StartStep(100, 1, 0);
  RequestState request = MakeState(2, /*max_tokens=*/2);
  request.num_scheduled_tokens = 2;
  EXPECT_EQ(budget_.NumTokens(request), 0);
  request.num_samples_in_flight = 1;
  EXPECT_EQ(budget_.NumTokens(request), 1);
  request.output_token_ids = {5};
  request.num_scheduled_tokens = 3;
  EXPECT_EQ(budget_.NumTokens(request), 0) << "the token in flight is its last";
}

TEST_F(TokenBudgetTest, TokensStopBeforeAnItemWithoutRoom) {
  StartStep(100, 0, 1);
  RequestState request = MakeState(9, 4, {{"a", 1, 3}, {"b", 5, 3}});
  EXPECT_EQ(budget_.NumTokens(request), 5);
  EXPECT_FALSE(budget_.LacksEncoder(MakeState(9)));
  encoder_.Close();
  EXPECT_EQ(budget_.NumTokens(request), 1);
  request.num_scheduled_tokens = 1;
  EXPECT_EQ(budget_.NumTokens(request), 0);
  EXPECT_TRUE(budget_.LacksEncoder(request));
}

}  // namespace
}  // namespace pagemill::scheduler::internal
