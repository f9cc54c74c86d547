#include "cc/scheduler/internal/draft_accounts.h"

#include <vector>

#include "cc/step/step_plan.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler::internal {
namespace {

class DraftAccountsTest : public testing::Test {
 protected:
  DraftAccountsTest() {
    options_.max_draft_tokens = 3;
    request_.draft_token_ids = {7, 8, 9};
    request_.num_scheduled_tokens = 3;
  }
  static step::Request MakeRequest() {
    step::Request request;
    request.prompt_token_ids = {1, 2, 3, 4};
    request.sampling.max_tokens = 20;
    return request;
  }
  static kv_cache::KvCacheOptions CacheOptions() {
    kv_cache::KvCacheOptions options;
    options.num_blocks = 3;  // of which one is null
    options.block_size = 4;
    return options;
  }

  SchedulerOptions options_;
  SchedulerStats counters_;
  kv_cache::KvCacheManager cache_{CacheOptions()};
  DraftAccounts drafts_{options_, /*max_request_tokens=*/12, &cache_, &counters_};
  RequestState request_{MakeRequest()};
};

TEST_F(DraftAccountsTest, DraftsFitWhatTheStepHas) {
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 20, .rows = 20}), 3);
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 3, .rows = 20}), 2);
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 20, .rows = 4, .num_behind = 2}), 1);
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 20, .rows = 20, .num_running = 1}), 0)
      << "a second block is for the request that may need it";
  request_.num_scheduled_tokens = 1;
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 20, .rows = 20}), 0)
      << "not behind the last known token";
}

TEST_F(DraftAccountsTest, DraftsEndBeforeTheRequestDoes) {
  request_.output_token_ids.assign(6, 5);
  request_.num_scheduled_tokens = 9;
  EXPECT_EQ(drafts_.NumToRun(request_, 1, {.tokens = 20, .rows = 20}), 0)
      << "the pool holds eight tokens";
  const DraftAccounts larger(options_, 100, &cache_, &counters_);
  request_.output_token_ids.assign(18, 5);
  request_.num_scheduled_tokens = 21;
  EXPECT_EQ(larger.NumToRun(request_, 1, {.tokens = 20, .rows = 20}), 0) << "no block";
}

TEST_F(DraftAccountsTest, RejectedDraftsWereNeverThere) {
  request_.num_samples_in_flight = 1;
  std::vector<int32_t> placed;
  DraftAccounts::Place(request_, 2, &placed);
  EXPECT_EQ(placed, std::vector<int32_t>(2, step::kPlaceholderTokenId));
  request_.num_samples_in_flight = 0;
  DraftAccounts::Place(request_, 2, &placed);
  EXPECT_EQ(placed, (std::vector<int32_t>{7, 8}));

  request_.num_drafts_in_flight = 3;
  request_.num_scheduled_tokens = 7;
  request_.num_computed_tokens = 4;
  drafts_.Settle(&request_, {.num_planned = 3, .num_verified = 2, .num_accepted = 1});
  EXPECT_EQ(request_.num_scheduled_tokens, 5);
  EXPECT_EQ(request_.num_computed_tokens, 5);
  EXPECT_EQ(request_.num_drafts_in_flight, 0);
  EXPECT_EQ(counters_.draft_tokens, 2u);
  EXPECT_EQ(counters_.accepted_draft_tokens, 1u);

  request_.num_drafts_in_flight = 1;
  drafts_.Settle(&request_, {.num_planned = 1, .num_verified = 0, .num_accepted = 0});
  EXPECT_EQ(request_.num_draft_steps, 1) << "the second step had no drafts to verify";
  EXPECT_EQ(request_.num_verified_drafts, 2);
  EXPECT_EQ(request_.num_accepted_drafts, 1);
}

TEST_F(DraftAccountsTest, ProposalsAreCutToTheMost) {
  drafts_.Propose(&request_, {1, 2, 3, 4, 5});
  EXPECT_EQ(request_.draft_token_ids, (std::vector<int32_t>{1, 2, 3}));
  drafts_.Propose(&request_, {});
  EXPECT_TRUE(request_.draft_token_ids.empty());
  options_.max_draft_tokens = 0;
  drafts_.Propose(&request_, {1});
  EXPECT_TRUE(request_.draft_token_ids.empty());
}

}  // namespace
}  // namespace pagemill::scheduler::internal
