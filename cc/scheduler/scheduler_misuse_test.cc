// Mistakes of a host: wrong ids, results that fit no plan, calls in the wrong order. Each is a
// status or an event of the request that it concerns; the scheduler goes on.
#include <random>
#include <utility>
#include <vector>

#include "cc/kv_cache/held_prefixes.h"
#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::RequestResult;
using step::StepResult;

TEST_F(SchedulerTest, IdsThatDoNotExist) {
  Start(SmallOptions());
  std::vector<RequestEvent> events;
  const RequestId unknown(77);
  EXPECT_FALSE(scheduler_->Abort(unknown, &events));
  EXPECT_FALSE(scheduler_->Release(unknown));
  EXPECT_EQ(scheduler_->Extend(unknown, {.token_ids = {1}}).code(), StatusCode::kNotFound);
  scheduler_->AbandonTransfer(kv_cache::TransferId(5));
  std::vector<kv_cache::KvTransferResult> results(2);
  results[0].id = results[1].id = kv_cache::TransferId(5);
  scheduler_->FinishTransfers(results);
  EXPECT_EQ(scheduler_->held_prefixes().End(kv_cache::HeldPrefixId(9)), 0);
  EXPECT_FALSE(scheduler_->held_prefixes().Unpin(kv_cache::PinId(9)));
  EXPECT_TRUE(events.empty());

  Add(MakeRequest(1, 5, 1));
  EXPECT_EQ(scheduler_->Add(MakeRequest(1, 5, 1)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Step(), "1:5");
  EXPECT_FALSE(scheduler_->Abort(RequestId(1), &events)) << "it has ended";
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
}

TEST_F(SchedulerTest, ResultsWithoutAStep) {
  Start(SmallOptions());
  std::vector<RequestEvent> events;
  EXPECT_EQ(scheduler_->Update(StepResult(), &events).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(scheduler_->FailStep(Internal("x"), &events).code(), StatusCode::kFailedPrecondition);
  Add(MakeRequest(1, 5, 2));
  EXPECT_EQ(Step(), "1:5");
  StepResult again;
  again.step_id = plan_.step_id;
  EXPECT_EQ(scheduler_->Update(std::move(again), &events).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Step(), "1:1");  // none of it did harm
}

// What can be wrong with a result, drawn at random.
class Mistakes {
 public:
  explicit Mistakes(uint32_t seed) : random_(seed) {}
  int32_t Draw(int32_t most) { return static_cast<int32_t>(random_() % (most + 1)); }

  StepResult MakeResult(const step::StepPlan& plan) {
    StepResult result;
    result.step_id = plan.step_id + (Draw(29) == 0);
    for (const ScheduledRequest& entry : plan.scheduled) {
      if (Draw(99) == 0) continue;
      RequestResult& one = result.results.emplace_back();
      one.index = step::RequestIndex(entry.index.value() + (Draw(49) == 0 ? Draw(200) - 100 : 0));
      const int32_t num_tokens = entry.sample ? 1 + (Draw(29) == 0) * Draw(5) : Draw(49) == 0;
      for (int32_t i = 0; i < num_tokens; ++i) one.sampled_token_ids.push_back(Token());
      for (int32_t i = Draw(4); i > 2; --i) one.draft_token_ids.push_back(Token());
      if (Draw(59) == 0) one.num_missing_drafts = Draw(20) - 10;
      if (Draw(59) == 0) one.logprobs.resize(static_cast<size_t>(Draw(3)));
      if (Draw(59) == 0) one.prompt_logprobs.resize(static_cast<size_t>(Draw(9)));
      if (Draw(59) == 0) one.pooled = {1.0f};
    }
    if (Draw(59) == 0) result.results.emplace_back();
    return result;
  }

  Request DrawRequest() {
    Request request = MakeRequest(static_cast<uint64_t>(Draw(12)), Draw(30), Draw(12) - 1);
    request.streaming_input = Draw(6) == 0;
    request.starts_held = Draw(6) == 0;
    request.priority = Draw(5) - 2;
    if (Draw(9) == 0) request.sampling.logprobs = Draw(40) - 3;
    if (Draw(9) == 0) request.sampling.prompt_logprobs = Draw(40) - 3;
    if (Draw(9) == 0) request.deadline_us = Draw(100);
    if (Draw(9) == 0) request.media.push_back({});
    return request;
  }

 private:
  int32_t Token() { return Draw(60) == 0 ? Draw(1000) - 500 : Draw(90); }
  std::mt19937 random_;
};

class SchedulerMisuse : public SchedulerTest, public testing::WithParamInterface<int> {};

TEST_P(SchedulerMisuse, RandomCallsLeaveTheSchedulerIntact) {
  Mistakes host(static_cast<uint32_t>(GetParam()));
  SchedulerOptions options = SmallOptions();
  options.decode_ahead = GetParam() % 2 == 0;
  options.max_draft_tokens = GetParam() % 3;
  options.policy = GetParam() % 4 == 3 ? "priority" : "fcfs";
  if (GetParam() % 4 == 1) {
    options.kv_cache.groups = {{"full"}, {.kind = "sliding_window", .window_tokens = 8}};
  }
  Start(options);
  std::vector<step::StepPlan> plans;
  std::vector<RequestEvent> events;
  for (int i = 0; i < 20000; ++i) {
    const RequestId id(static_cast<uint64_t>(host.Draw(14)));
    switch (host.Draw(13)) {
      case 0:
      case 1:
        static_cast<void>(scheduler_->Add(host.DrawRequest()));
        break;
      case 2:
      case 3:
      case 4:  // perhaps with many steps in flight
        scheduler_->Schedule(&plan_, {.prefill_tokens = host.Draw(40) - 8});
        if (!plan_.empty()) plans.push_back(plan_);
        break;
      case 5:
      case 6:
      case 7: {  // of any of the plans, or of none
        StepResult result;
        if (!plans.empty()) {
          const size_t at = host.Draw(29) == 0 ? plans.size() - 1 : 0;
          result = host.MakeResult(plans[at]);
          plans.erase(plans.begin());
        }
        static_cast<void>(scheduler_->Update(std::move(result), &events));
        break;
      }
      case 8:
        if (host.Draw(3) == 0) scheduler_->Abort(id, &events);
        break;
      case 9:
        scheduler_->Release(id);
        static_cast<void>(scheduler_->Extend(id, {.token_ids = {1, host.Draw(200) - 50},
                                                  .part = static_cast<InputPart>(host.Draw(2))}));
        break;
      case 10:
        scheduler_->Expire(host.Draw(120), &events);
        break;
      case 11:
        if (host.Draw(9) == 0) scheduler_->Pause(static_cast<PauseMode>(host.Draw(2)), &events);
        if (host.Draw(1) == 0) scheduler_->Resume();
        break;
      case 12:
        scheduler_->ResetPrefixCache(host.Draw(9) == 0, host.Draw(1) == 0);
        scheduler_->ResetEncoderCache();
        break;
      default:
        if (host.Draw(9) == 0 && scheduler_->FailStep(Internal("x"), &events).ok()) {
          plans.erase(plans.begin());
        }
    }
    ASSERT_EQ(plans.size(), scheduler_->num_steps_in_flight());
    const Status intact = scheduler_->CheckIntegrity();
    ASSERT_TRUE(intact.ok()) << "call " << i << ": " << intact.ToString();
  }
  EXPECT_GT(events.size(), 100u);
  EXPECT_GT(scheduler_->stats().generation_tokens, 50u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerMisuse, testing::Range(0, 12));

}  // namespace
}  // namespace pagemill::scheduler
