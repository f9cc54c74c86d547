// What the policies mean in a scheduler: which request is preempted for which, and that all end
// with the right tokens all the same.
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"

namespace pagemill::scheduler {
namespace {

SchedulerOptions Options(const std::string& policy) {
  SchedulerOptions options = SmallOptions();
  options.max_num_seqs = 2;
  options.max_waiting_requests = SchedulerOptions().max_waiting_requests;
  options.policy = policy;
  return options;
}

class PoliciesTest : public SchedulerTest {
 protected:
  void Add(uint64_t id, int32_t prompt_size, int32_t max_tokens, int32_t priority,
           const std::string& tenant = "") {
    Request request = MakeRequest(id, prompt_size, max_tokens);
    request.priority = priority;
    request.tenant = tenant;
    expected_[id] = FakeModel::Continue(request.prompt_token_ids, static_cast<size_t>(max_tokens),
                                        /*vocab_size=*/97);
    SchedulerTest::Add(request);
  }

  // One step; "id:tokens" for each entry of its plan. Tokens of requests that end are checked.
  std::string Step() {
    const std::string text = SchedulerTest::Step();
    if (plan_.empty()) return text;
    for (const RequestEvent& event : events_) {
      std::vector<int32_t>& tokens = tokens_[event.id.value()];
      tokens.insert(tokens.end(), event.new_token_ids.begin(), event.new_token_ids.end());
      if (event.finish_reason) {
        EXPECT_EQ(tokens, expected_[event.id.value()]) << "request " << event.id.value();
        ended_.push_back(event.id.value());
      }
    }
    return text;
  }

  void Drain() {
    for (int i = 0; i < 100'000 && scheduler_->HasWork() && !HasFailure(); ++i) Step();
    EXPECT_FALSE(scheduler_->HasWork());
    EXPECT_EQ(ended_.size(), expected_.size());
  }

  std::map<uint64_t, std::vector<int32_t>> expected_, tokens_;
  std::vector<uint64_t> ended_;  // in this order
};

TEST_F(PoliciesTest, PriorityPreemptsForASlot) {
  Start(Options("priority"));
  Add(1, 3, 6, 1);
  Add(2, 3, 6, 2);
  EXPECT_EQ(Step(), "1:3 2:3");
  Add(3, 3, 2, 0);
  EXPECT_EQ(Step(), "1:1 3:3") << "2 is the worst";
  EXPECT_EQ(Step(), "3:1 1:1") << "and the best gets its tokens first";
  EXPECT_EQ(Step(), "1:1 2:4") << "a slot is free again; 2 computes its tokens again";
  EXPECT_EQ(scheduler_->stats().num_preemptions, 1u);
  Drain();
}

TEST_F(PoliciesTest, PriorityDoesNotPreemptEquals) {
  Start(Options("priority"));
  Add(1, 3, 4, 1);
  Add(2, 3, 4, 1);
  Step();
  Add(3, 3, 4, 1);
  EXPECT_EQ(Step(), "1:1 2:1");
  Drain();
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0u);
}

TEST_F(PoliciesTest, PriorityPreemptsForBlocks) {
  SchedulerOptions options = Options("priority");
  options.kv_cache.num_blocks = 9;  // 32 tokens
  options.kv_cache.enable_prefix_caching = false;
  options.max_num_seqs = 4;
  Start(options);
  Add(1, 12, 4, 1);
  Add(2, 12, 4, 2);
  Step();
  Step();
  Add(3, 14, 1, 0);  // 4 blocks, none is free
  EXPECT_EQ(Step(), "1:1 3:14") << "2 is enough";
  Drain();
}

TEST_F(PoliciesTest, PriorityPreemptsNobodyInVain) {
  SchedulerOptions options = Options("priority");
  options.kv_cache.num_blocks = 17;  // 64 tokens
  options.kv_cache.enable_prefix_caching = false;
  options.max_num_seqs = 4;
  Start(options);
  Add(1, 16, 20, 0);
  Add(2, 16, 20, 2);
  Step();
  Step();
  Add(3, 50, 1, 1);  // 13 blocks: more than 2 could give
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Step(), "1:1 2:1");
  EXPECT_EQ(scheduler_->stats().num_preemptions, 0u);
  Drain();
}

TEST_F(PoliciesTest, PriorityMakesRoomForSeveralInOneStep) {
  SchedulerOptions options = Options("priority");
  options.max_num_seqs = 4;
  Start(options);
  for (uint64_t id = 1; id <= 4; ++id) Add(id, 2, 9, 5);
  Step();
  for (uint64_t id = 5; id <= 7; ++id) Add(id, 3, 2, 0);
  EXPECT_EQ(Step(), "1:1 5:3 6:3 7:3");
  Drain();
}

TEST_F(PoliciesTest, PriorityGivesWayWithTheWorstWhereBlocksRunOut) {
  SchedulerOptions options = Options("priority");
  options.kv_cache.num_blocks = 7;  // 24 tokens
  options.kv_cache.enable_prefix_caching = false;
  Start(options);
  Add(1, 12, 8, 3);
  Step();
  Add(2, 12, 8, 0);  // younger, but better
  Step();
  Step();
  EXPECT_EQ(Step(), "2:1");
  Drain();
  EXPECT_EQ(ended_, (std::vector<uint64_t>{2, 1}));
}

TEST_F(PoliciesTest, FairSharesTokensByWeight) {
  SchedulerOptions options = Options("fair");
  options.tenant_weights = {{"gold", 3}};
  options.max_waiting_requests = 1000;
  Start(options);
  for (uint64_t id = 1; id <= 200; ++id) Add(id, 10, 5, 0, "tin");
  for (uint64_t id = 201; id <= 400; ++id) Add(id, 10, 5, 0, "gold");
  while (ended_.size() < 160) Step();
  int gold = 0;
  for (uint64_t id : ended_) gold += id > 200;
  EXPECT_NEAR(gold, 120, 3);
  Drain();
}

TEST_F(PoliciesTest, FairGivesWayWithTheTenantMostOverItsShare) {
  SchedulerOptions options = Options("fair");
  options.kv_cache.num_blocks = 11;  // 40 tokens
  options.kv_cache.enable_prefix_caching = false;
  options.max_num_seqs = 3;
  Start(options);
  Add(1, 12, 12, 0, "greedy");
  Add(2, 12, 12, 0, "greedy");
  Add(3, 12, 12, 0, "modest");
  Step();
  Step();
  Step();
  // The ten blocks are full: the greedy tenant's younger request goes, not the youngest of all.
  while (scheduler_->stats().num_preemptions == 0) Step();
  EXPECT_EQ(scheduler_->stats().num_running, 2);
  EXPECT_EQ(ids_[plan_.scheduled[0].index.value()], 1u);
  EXPECT_EQ(ids_[plan_.scheduled[1].index.value()], 3u);
  Drain();
}

TEST_F(PoliciesTest, APolicyThatIgnoresWeightsRefusesThem) {
  SchedulerOptions options = Options("fcfs");
  options.tenant_weights = {{"gold", 3}};
  const Status status = options.Validate();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("tenant_weights"), std::string::npos);
}

// Small pools and constant preemption: exact tokens for every request.
class PoliciesPropertyTest : public PoliciesTest,
                             public testing::WithParamInterface<const char*> {};

TEST_P(PoliciesPropertyTest, EveryRequestGetsItsTokens) {
  SchedulerOptions options = Options(GetParam());
  if (options.policy == "fair") options.tenant_weights = {{"t1", 4}};
  options.kv_cache.num_blocks = 16;
  options.max_num_seqs = 5;
  options.max_waiting_requests = 1'000'000;
  Start(options);
  std::mt19937 random(23);
  const auto pick = [&random](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  uint64_t id = 0;
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    if (pick(0, 9) < 2) {
      const int32_t priority = options.policy == "priority" ? pick(-2, 2) : 0;
      Add(++id, pick(1, 30), pick(1, 25), priority, "t" + std::to_string(pick(0, 3)));
    }
    if (id > 0 && pick(0, 49) == 0) {
      std::vector<RequestEvent> events;
      const uint64_t victim = 1 + random() % id;
      if (scheduler_->Abort(RequestId(victim), &events)) expected_.erase(victim);
    }
    Step();
  }
  Drain();
  EXPECT_GT(scheduler_->stats().num_preemptions, 100u);
}

INSTANTIATE_TEST_SUITE_P(All, PoliciesPropertyTest, testing::Values("fcfs", "priority", "fair"));

}  // namespace
}  // namespace pagemill::scheduler
