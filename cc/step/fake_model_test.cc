// The fake model is what other tests trust: it must see every mistake in a plan.
#include "cc/step/fake_model.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

constexpr FakeModel::Options kOptions = {.num_blocks = 8,
                                         .block_size = 2,
                                         .max_num_seqs = 2,
                                         .vocab_size = 50,
                                         .max_num_tokens = 6,
                                         .max_num_logits_rows = 4};

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};

Request MakeRequest() {
  Request request;
  request.id = RequestId(1);
  request.prompt_token_ids = kPrompt;
  return request;
}

// Starts a request in slot 0 and runs its prompt.
StepPlan FirstPlan() {
  StepPlan plan;
  plan.step_id = 1;
  ScheduledRequest& entry = plan.scheduled.emplace_back();
  entry.index = RequestIndex(0);
  entry.start = std::make_shared<const Request>(MakeRequest());
  entry.token_ids = kPrompt;
  entry.new_block_ids = {{BlockId(5), BlockId(2), BlockId(7)}};
  entry.sample = true;
  plan.total_num_tokens = 5;
  return plan;
}

StepPlan SecondPlan(int32_t token) {
  StepPlan plan;
  plan.step_id = 2;
  ScheduledRequest& entry = plan.scheduled.emplace_back();
  entry.num_computed_tokens = 5;
  entry.token_ids = {token};
  entry.sample = true;
  plan.total_num_tokens = 1;
  return plan;
}

TEST(FakeModel, ContinuesFromWhatPlansWrote) {
  const std::vector<int32_t> expected = FakeModel::Continue(kPrompt, 2, 50);
  FakeModel model(kOptions);
  StatusOr<StepResult> result = model.Run(FirstPlan());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->results[0].sampled_token_ids, std::vector<int32_t>{expected[0]});
  result = model.Run(SecondPlan(expected[0]));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->results[0].sampled_token_ids, std::vector<int32_t>{expected[1]});
}

TEST(FakeModel, ABlockUsedTwiceIsSeen) {
  const std::vector<int32_t> expected = FakeModel::Continue(kPrompt, 2, 50);
  FakeModel model(kOptions);
  ASSERT_TRUE(model.Run(FirstPlan()).ok());
  StepPlan plan = SecondPlan(expected[0]);
  ScheduledRequest& other = plan.scheduled.emplace_back();
  other.index = RequestIndex(1);
  other.start = std::make_shared<const Request>(MakeRequest());
  other.token_ids = {49};
  other.new_block_ids = {{BlockId(2)}};  // holds tokens 2 and 3 of the first request
  plan.total_num_tokens = 2;
  EXPECT_NE(model.Run(plan).status().message().find("another context"), std::string::npos);
}

TEST(FakeModel, APrefixOfAnotherContextOrSaltIsSeen) {
  for (const char* salt : {"", "other"}) {
    for (const BlockId second : {BlockId(2), BlockId(7)}) {
      FakeModel model(kOptions);
      ASSERT_TRUE(model.Run(FirstPlan()).ok());
      // Takes over the first two blocks of the other request, or its first and third one.
      StepPlan plan = SecondPlan(6);
      Request request = MakeRequest();
      request.cache_salt = salt;
      ScheduledRequest& entry = plan.scheduled[0];
      entry.index = RequestIndex(1);
      entry.start = std::make_shared<const Request>(request);
      entry.num_computed_tokens = 4;
      entry.token_ids = {5};
      entry.new_block_ids = {{BlockId(5), second, BlockId(1)}};
      EXPECT_EQ(model.Run(plan).ok(), salt[0] == 0 && second == BlockId(2));
    }
  }
}

TEST(FakeModel, BrokenPlansAreRefused) {
  struct Case {
    const char* what;
    std::function<void(StepPlan&)> change;
  };
  const std::vector<Case> cases = {
      {"no such slot", [](StepPlan& p) { p.scheduled[0].index = RequestIndex(2); }},
      {"never started", [](StepPlan& p) { p.scheduled[0].start = nullptr; }},
      {"no such block", [](StepPlan& p) { p.scheduled[0].new_block_ids[0][0] = BlockId(8); }},
      {"no such block", [](StepPlan& p) { p.scheduled[0].new_block_ids[0][0] = BlockId(0); }},
      {"beyond the block table", [](StepPlan& p) { p.scheduled[0].new_block_ids[0].pop_back(); }},
      {"not the sum", [](StepPlan& p) { p.total_num_tokens = 4; }},
      {"runs no tokens", [](StepPlan& p) { p.scheduled[0].token_ids.clear(); }},
      {"scheduled twice", [](StepPlan& p) { p.scheduled.push_back(p.scheduled[0]); }},
      {"holds no request", [](StepPlan& p) { p.released = {RequestIndex(1)}; }},
      {"before the last known",
       [](StepPlan& p) { p.scheduled[0].token_ids.pop_back(), p.total_num_tokens = 4; }},
      {"beyond those known",
       [](StepPlan& p) { p.scheduled[0].token_ids.push_back(1), p.total_num_tokens = 6; }},
      {"token limit",
       [](StepPlan& p) {
         p.scheduled[0].token_ids.insert(p.scheduled[0].token_ids.end(), 2, 1);
         p.total_num_tokens = 7;
       }},
      {"row limit", [](StepPlan& p) { p.scheduled[0].prompt_logprobs = true; }},
      {"never written",
       [](StepPlan& p) {
         p.scheduled[0].num_computed_tokens = 4;
         p.scheduled[0].token_ids = {5};
         p.total_num_tokens = 1;
       }},
  };
  for (const Case& c : cases) {
    FakeModel model(kOptions);
    StepPlan plan = FirstPlan();
    c.change(plan);
    const Status status = model.Run(plan).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << c.what;
    EXPECT_NE(status.message().find(c.what), std::string::npos) << status.message();
  }
}

TEST(FakeModel, BrokenSequencesOfPlansAreRefused) {
  FakeModel model(kOptions);
  ASSERT_TRUE(model.Run(FirstPlan()).ok());
  EXPECT_FALSE(model.Run(FirstPlan()).ok()) << "starts in a slot that is taken";
  StepPlan plan = SecondPlan(1);
  plan.scheduled[0].num_computed_tokens = 4;
  EXPECT_FALSE(model.Run(plan).ok()) << "runs a token again";
  plan = FirstPlan();
  plan.released = {RequestIndex(0)};
  EXPECT_TRUE(model.Run(plan).ok());
}

}  // namespace
}  // namespace pagemill::step
