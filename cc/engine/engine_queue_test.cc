// What an engine does with requests that come faster than it can start them: bounds, queue time,
// policies. Refusals say when a retry makes sense.
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FinishReason;
using step::Request;
using step::RequestId;

constexpr double kLong = 60;  // seconds: longer than any step takes on a loaded machine
constexpr int64_t kSecondNanos = 1'000'000'000;

Request MakeRequest(uint64_t id, size_t prompt_size, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  request.prompt_token_ids = std::vector<int32_t>(prompt_size, static_cast<int32_t>(id % 90));
  request.sampling.max_tokens = max_tokens;
  return request;
}

Request OfTenant(Request request, std::string tenant) {
  request.tenant = std::move(tenant);
  return request;
}

Request WithPriority(Request request, int32_t priority) {
  request.priority = priority;
  return request;
}

// Passes one second in every step.
class TickingRunner final : public Runner {
 public:
  TickingRunner(FakeRunner* runner, FakeClock* clock)
      : Runner(runner->limits()), runner_(runner), clock_(clock) {}
  Status Execute(const step::StepPlan& plan) override { return runner_->Execute(plan); }
  Status Sample() override { return runner_->Sample(); }
  StatusOr<step::StepResult> Collect() override {
    StatusOr<step::StepResult> result = runner_->Collect();
    clock_->AdvanceNanos(kSecondNanos);
    return result;
  }

 private:
  FakeRunner* runner_;
  FakeClock* clock_;
};

// One request runs at a time.
class EngineQueueTest : public testing::Test {
 protected:
  EngineQueueTest() {
    options_.max_num_seqs = 1;
    options_.check_integrity = true;
  }
  void Start() {
    auto engine =
        Engine::Create(options_, std::make_unique<TickingRunner>(&runner_, &clock_), &clock_, {});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }
  void TearDown() override {
    runner_.Release();
    if (engine_ != nullptr) engine_->Shutdown();
    EXPECT_EQ(runner_.violation(), "");
  }

  // The first request runs, and stays in its first step.
  void StartOne(Request request) {
    runner_.Hold();
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
    while (engine_->stats().num_running == 0) std::this_thread::yield();
  }
  // Ids in the order in which they came to have outputs.
  std::vector<uint64_t> Finish(size_t count) {
    runner_.Release();
    std::vector<uint64_t> ended;
    while (ended.size() < count) {
      const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) ADD_FAILURE() << "nothing came";
      if (outputs.empty()) break;
      for (const RequestOutput& output : outputs) {
        if (!output.finished()) continue;
        ended.push_back(output.request_id.value());
        ends_[output.request_id.value()] = output;
      }
    }
    return ended;
  }

  FakeRunner runner_{FakeRunner::DefaultLimits()};
  FakeClock clock_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, RequestOutput> ends_;  // last outputs
};

void ExpectExhausted(const Status& status, const std::string& flag) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(flag), std::string::npos) << status.message();
  EXPECT_GE(status.retry_after_s(), 1);
}

TEST_F(EngineQueueTest, AFullQueueSaysWhenToRetry) {
  options_.max_waiting_requests = 1;
  Start();
  StartOne(MakeRequest(1, 3, 2));
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3, 2)).ok());
  ExpectExhausted(engine_->Submit(MakeRequest(3, 3, 2)), "--max-num-queued-reqs");
  EXPECT_EQ(engine_->stats().num_refused, 1u);
  Finish(2);
  EXPECT_TRUE(engine_->Submit(MakeRequest(3, 3, 2)).ok());
}

TEST_F(EngineQueueTest, ThereIsRoomUntilTheQueueIsFullOrTheEngineDrains) {
  options_.max_waiting_requests = 1;
  Start();
  const std::unique_ptr<EngineClient> client = *engine_->NewClient();
  EXPECT_TRUE(client->CheckRoom().ok());
  StartOne(MakeRequest(1, 3, 2));
  EXPECT_TRUE(client->CheckRoom().ok());
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3, 2)).ok());
  ExpectExhausted(client->CheckRoom(), "--max-num-queued-reqs");
  EXPECT_EQ(engine_->stats().num_refused, 0u) << "no request was submitted";
  Finish(2);
  EXPECT_TRUE(client->CheckRoom().ok());
  engine_->Drain();
  EXPECT_EQ(client->CheckRoom().code(), StatusCode::kUnavailable);
}

TEST_F(EngineQueueTest, WaitingPromptTokensAreBounded) {
  options_.max_waiting_tokens = 10;
  Start();
  StartOne(MakeRequest(1, 9, 2));
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 12, 2)).ok()) << "none waits";
  EXPECT_EQ(engine_->stats().num_waiting_tokens, 12);
  ExpectExhausted(engine_->Submit(MakeRequest(3, 1, 2)), "--max-waiting-tokens");
  Finish(2);
  EXPECT_EQ(engine_->stats().num_waiting_tokens, 0);
}

TEST_F(EngineQueueTest, ATenantCannotFillTheQueue) {
  options_.max_waiting_per_tenant = 1;
  Start();
  StartOne(OfTenant(MakeRequest(1, 3, 2), "a"));
  ASSERT_TRUE(engine_->Submit(OfTenant(MakeRequest(2, 3, 2), "a")).ok());
  ExpectExhausted(engine_->Submit(OfTenant(MakeRequest(3, 3, 2), "a")), "--max-waiting-per-tenant");
  EXPECT_TRUE(engine_->Submit(OfTenant(MakeRequest(4, 3, 2), "b")).ok());
  EXPECT_EQ(Finish(3).size(), 3u);
}

TEST_F(EngineQueueTest, WhoWouldWaitTooLongIsRefusedAtOnce) {
  options_.max_queue_time_ms = 1500;
  Start();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 3, 8)).ok());
  Finish(1);  // it took 8 steps of a second
  EXPECT_EQ(engine_->stats().estimated_wait_s, 0);
  StartOne(MakeRequest(2, 3, 8));
  const Status status = engine_->Submit(MakeRequest(3, 3, 8));
  ExpectExhausted(status, "--max-queue-time");
  EXPECT_GE(status.retry_after_s(), 3);
  EXPECT_GT(engine_->stats().estimated_wait_s, 1.5);
}

TEST_F(EngineQueueTest, QueueTimeThatIsOverRefusesTheRequest) {
  options_.max_queue_time_ms = 1500;
  Start();
  StartOne(MakeRequest(1, 3, 8));
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 3, 8)).ok()) << "nothing is known about speed";
  Finish(2);
  EXPECT_EQ(ends_[1].finish_reason, FinishReason::kLength);
  EXPECT_EQ(ends_[2].finish_reason, FinishReason::kError);
  ExpectExhausted(ends_[2].error, "--max-queue-time");
}

TEST_F(EngineQueueTest, AStartDeadlineOfTheClientsOwnIsOneOfDeadlines) {
  options_.max_queue_time_ms = 1500;
  Start();
  StartOne(MakeRequest(1, 3, 8));
  Request request = MakeRequest(2, 3, 8);
  request.start_deadline_us = clock_.NowNanos() / 1000 + 500'000;
  ASSERT_TRUE(engine_->Submit(request).ok());
  Finish(2);
  EXPECT_EQ(ends_[2].error.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(EngineQueueTest, ThePriorityPolicyRunsLowNumbersFirst) {
  options_.scheduling_policy = "priority";
  Start();
  StartOne(WithPriority(MakeRequest(1, 3, 1), -9));
  for (uint64_t id : {2, 3, 4}) {
    const auto priority = 5 - static_cast<int32_t>(id);
    ASSERT_TRUE(engine_->Submit(WithPriority(MakeRequest(id, 3, 2), priority)).ok());
  }
  EXPECT_EQ(Finish(4), (std::vector<uint64_t>{1, 4, 3, 2}));
}

TEST_F(EngineQueueTest, APriorityThatNothingUsesIsRefused) {
  Start();
  const Status status = engine_->Submit(WithPriority(MakeRequest(1, 3, 2), 4));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().rfind("priority is 4", 0), 0u) << status.message();
}

// Five requests of one tenant do not delay the one of another.
TEST_F(EngineQueueTest, TheFairPolicyTakesTurnsAmongTenants) {
  options_.scheduling_policy = "fair";
  options_.tenant_weights = {{"a", 1}, {"b", 2}};
  Start();
  StartOne(OfTenant(MakeRequest(1, 3, 2), "a"));
  for (uint64_t id : {2, 3, 4, 5}) {
    ASSERT_TRUE(engine_->Submit(OfTenant(MakeRequest(id, 3, 2), "a")).ok());
  }
  ASSERT_TRUE(engine_->Submit(OfTenant(MakeRequest(6, 3, 2), "b")).ok());
  const std::vector<uint64_t> ended = Finish(6);
  EXPECT_EQ((std::vector<uint64_t>{ended[0], ended[1]}), (std::vector<uint64_t>{1, 6}));
}

TEST_F(EngineQueueTest, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [this](void (*change)(EngineOptions&)) {
    EngineOptions options;
    change(options);
    return Engine::Create(options, &runner_, &clock_, {}).status().code();
  };
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_waiting_tokens = -1; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_waiting_per_tenant = -1; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_queue_time_ms = -1; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_queue_time_ms = INT64_MAX; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_partial_prefills = -1; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.max_long_partial_prefills = 1; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.prefix_cache_eviction = "newest"; }), kInvalid);
  EXPECT_EQ(refused([](EngineOptions& o) { o.tenant_weights = {{"a", 2}}; }), kInvalid);
}

}  // namespace
}  // namespace pagemill::engine
