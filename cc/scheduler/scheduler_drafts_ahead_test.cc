// Drafts with several steps in flight: plans that count on drafts whose step is not over.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

constexpr int32_t kUnknown = step::kPlaceholderTokenId;

class DraftsAheadTest : public SchedulerTest {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options = SmallOptions();
    options.max_draft_tokens = 3;
    options.decode_ahead = true;
    return options;
  }

  std::string Plan() {
    const std::string text = Schedule();
    if (!plan_.empty()) plans_.push_back(plan_);
    return text;
  }

  // Reports the oldest plan. Each entry gets the same tokens and proposal.
  void Answer(const std::vector<int32_t>& tokens, const std::vector<int32_t>& drafts = {},
              int32_t num_missing_drafts = 0) {
    step::StepResult result;
    result.step_id = plans_.front().step_id;
    for (const ScheduledRequest& entry : plans_.front().scheduled) {
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = entry.index;
      answer.sampled_token_ids = tokens;
      answer.draft_token_ids = drafts;
      answer.num_missing_drafts = num_missing_drafts;
    }
    plans_.erase(plans_.begin());
    events_.clear();
    EXPECT_TRUE(scheduler_->Update(std::move(result), &events_).ok());
    const Status status = scheduler_->CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  // One request, whose first token is known and followed by three drafts in flight.
  void StartWithDrafts(const Request& request) {
    Start(Options());
    Add(request);
    EXPECT_EQ(Plan(), "1:5");
    Answer({31}, {40, 41, 42});
    EXPECT_EQ(Plan(), "1:4");
  }

  const ScheduledRequest& entry() const { return plan_.scheduled[0]; }

  std::vector<step::StepPlan> plans_;  // in flight
};

TEST_F(DraftsAheadTest, PlansCountOnAllDraftsUntilTheirResultComes) {
  StartWithDrafts(MakeRequest(1, 5, 20));
  EXPECT_EQ(entry().draft_token_ids, (std::vector<int32_t>{40, 41, 42}));
  EXPECT_EQ(Plan(), "1:4");
  EXPECT_EQ(entry().num_computed_tokens, 9);
  EXPECT_EQ(entry().token_ids, std::vector<int32_t>{kUnknown});
  EXPECT_EQ(entry().draft_token_ids, std::vector<int32_t>(3, kUnknown)) << "as many as proposed";
  EXPECT_TRUE(entry().sample);

  Answer({40, 60}, {50});  // two are rejected
  EXPECT_EQ(events_[0].new_token_ids, (std::vector<int32_t>{40, 60}));
  EXPECT_EQ(Plan(), "1:2");
  EXPECT_EQ(entry().num_computed_tokens, 11);
  EXPECT_EQ(entry().draft_token_ids, std::vector<int32_t>{kUnknown});

  Answer({1, 2, 3, 4});
  EXPECT_EQ(events_[0].new_token_ids, (std::vector<int32_t>{1, 2, 3, 4}));
  Answer({5}, {}, /*num_missing_drafts=*/1);
  EXPECT_EQ(Plan(), "1:1");
  EXPECT_EQ(entry().num_computed_tokens, 12);
  EXPECT_EQ(entry().token_ids, std::vector<int32_t>{5});
  EXPECT_EQ(scheduler_->stats().num_drafts, 2u);
  EXPECT_EQ(scheduler_->stats().draft_tokens, 6u);
  EXPECT_EQ(scheduler_->stats().accepted_draft_tokens, 4u);
}

TEST_F(DraftsAheadTest, RejectedDraftsDoNotEnterThePrefixCache) {
  StartWithDrafts(MakeRequest(1, 5, 20));
  EXPECT_EQ(Plan(), "1:4");
  Answer({60});  // positions 6 to 8 were drafts
  EXPECT_EQ(Plan(), "1:1");
  Answer({61});
  Answer({62});
  Request rejected = MakeRequest(11, 5, 20), kept = MakeRequest(21, 5, 20);
  for (int32_t token : {31, 40, 41, 42}) rejected.prompt_token_ids.push_back(token);
  for (int32_t token : {31, 60, 61, 62}) kept.prompt_token_ids.push_back(token);
  Add(rejected);
  Add(kept);
  EXPECT_EQ(Plan(), "1:1 11:5 21:1");
}

TEST_F(DraftsAheadTest, ARequestThatMayEndWithWhatIsInFlightWaits) {
  StartWithDrafts(MakeRequest(1, 5, 5));
  EXPECT_EQ(Plan(), "") << "five tokens may be in flight";
  Answer({40, 60});
  EXPECT_EQ(Plan(), "1:1");
  EXPECT_EQ(entry().num_computed_tokens, 7);
  EXPECT_EQ(entry().token_ids, std::vector<int32_t>{60});
}

TEST_F(DraftsAheadTest, DraftsInFlightCutThoseBehindThem) {
  StartWithDrafts(MakeRequest(1, 5, 7));
  EXPECT_EQ(Plan(), "1:2") << "a token and a draft, and the token behind them";
}

TEST_F(DraftsAheadTest, DraftsInFlightPreemptNoRequest) {
  SchedulerOptions options = Options();
  options.kv_cache.num_blocks = 5;
  Start(options);
  Add(MakeRequest(1, 5, 20));
  Add(MakeRequest(2, 5, 20));
  EXPECT_EQ(Plan(), "1:5 2:5");
  Answer({31}, {40, 41});
  EXPECT_EQ(Plan(), "1:3 2:3");  // up to the ends of their blocks
  EXPECT_EQ(Plan(), "") << "they might need blocks behind their drafts";
  Answer({60});
  EXPECT_EQ(Plan(), "1:1 2:1");
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0u);
}

TEST_F(DraftsAheadTest, LateResultsOfAStoppedRequestAreDropped) {
  Request request = MakeRequest(1, 5, 20);
  request.sampling.stop_token_ids = {41};
  StartWithDrafts(request);
  EXPECT_EQ(Plan(), "1:4");
  Answer({40, 41, 42, 43}, {50});
  EXPECT_EQ(events_[0].new_token_ids, (std::vector<int32_t>{40, 41}));
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  Add(MakeRequest(2, 5, 20));  // in the same slot
  EXPECT_EQ(Plan(), "2:5");
  Answer({44, 45});
  EXPECT_TRUE(events_.empty());
  Answer({46});
  EXPECT_EQ(events_[0].new_token_ids, std::vector<int32_t>{46});
}

TEST_F(DraftsAheadTest, ADraftThatWasMissingCannotBeAccepted) {
  for (const int32_t num_missing : {-1, 2, 4}) {
    StartWithDrafts(MakeRequest(1, 5, 20));
    EXPECT_EQ(Plan(), "1:4");
    Answer({40, 60});
    Answer({1, 2, 3}, {}, num_missing);
    EXPECT_EQ(events_[0].finish_reason, FinishReason::kError) << num_missing;
  }
}

}  // namespace
}  // namespace pagemill::scheduler
