// Media items and adapters in a scheduler: budgets, parked states, references, exact tokens.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"

namespace pagemill::scheduler {
namespace {

SchedulerOptions MediaOptions() {
  SchedulerOptions options = SmallOptions();
  options.max_encoder_tokens = 10;
  options.encoder_cache_tokens = 12;
  return options;
}

Request WithMedia(Request request, std::vector<step::MediaItem> media) {
  request.media = std::move(media);
  return request;
}

Request WithAdapter(Request request, uint64_t adapter) {
  request.adapter = step::AdapterId(adapter);
  return request;
}

class SchedulerMediaTest : public SchedulerTest {
 protected:
  void Drain() {
    for (int i = 0; i < 1000 && scheduler_->HasWork() && !HasFailure(); ++i) Step();
    EXPECT_FALSE(scheduler_->HasWork());
  }

  int64_t num_parked(ParkReason reason) const {
    return scheduler_->stats().num_parked[static_cast<size_t>(reason)];
  }
};

TEST_F(SchedulerMediaTest, TokensStopBeforeAnItemThatCannotBeEncodedInThisStep) {
  Start(MediaOptions());
  Add(WithMedia(MakeRequest(1, 16, 4), {{"a", 2, 6}, {"b", 9, 6}}));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{0});
  EXPECT_EQ(Step(), "1:7");
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{1});
  EXPECT_EQ(Step(), "1:1");
  EXPECT_TRUE(plan_.scheduled[0].media_to_encode.empty());
}

TEST_F(SchedulerMediaTest, AnOutputIsKeptForOthersAndReleasedWhenRoomIsNeeded) {
  SchedulerOptions options = MediaOptions();
  options.kv_cache.enable_prefix_caching = false;
  Start(options);
  Add(WithMedia(MakeRequest(1, 8, 1), {{"a", 0, 6}}));
  Step();
  Add(WithMedia(MakeRequest(2, 8, 1), {{"a", 1, 6}}));
  EXPECT_EQ(Step(), "2:8");
  EXPECT_TRUE(plan_.scheduled[0].media_to_encode.empty()) << "request 1 had it encoded";
  EXPECT_TRUE(plan_.released_media.empty());
  Add(WithMedia(MakeRequest(3, 8, 1), {{"b", 0, 7}}));
  Step();
  EXPECT_EQ(plan_.released_media, std::vector<std::string>{"a"});
}

TEST_F(SchedulerMediaTest, ARequestParksForEncoderBudgetWithoutBlockingOthers) {
  Start(MediaOptions());
  Add(WithMedia(MakeRequest(1, 7, 3), {{"a", 0, 6}}));
  Add(WithMedia(MakeRequest(2, 7, 3), {{"b", 0, 6}}));
  Add(MakeRequest(3, 3, 3));
  Add(WithMedia(MakeRequest(4, 3, 3), {{"c", 0, 2}}));
  EXPECT_EQ(Step(), "1:7 3:3") << "a smaller item does not overtake";
  EXPECT_EQ(num_parked(ParkReason::kEncoderBudget), 2);
  EXPECT_EQ(Step(), "1:1 3:1 2:7 4:3");
  EXPECT_EQ(num_parked(ParkReason::kEncoderBudget), 0);
}

TEST_F(SchedulerMediaTest, AbortAndPreemptionGiveBackReferences) {
  SchedulerOptions options = MediaOptions();
  options.max_num_tokens = 4;
  options.kv_cache.num_blocks = 6;
  options.kv_cache.enable_prefix_caching = false;
  Start(options);
  Add(WithMedia(MakeRequest(1, 12, 3), {{"a", 0, 10}}));
  EXPECT_EQ(Step(), "1:4");
  events_.clear();
  ASSERT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  Add(WithMedia(MakeRequest(2, 12, 3), {{"b", 0, 10}}));
  EXPECT_EQ(Step(), "2:4");
  EXPECT_EQ(plan_.released_media, std::vector<std::string>{"a"}) << "12 embeddings fit";
  Drain();
  const Status status = scheduler_->CheckIntegrity();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(SchedulerMediaTest, AFailedStepsOutputsAreNotUsed) {
  Start(MediaOptions());
  Add(WithMedia(MakeRequest(1, 8, 3), {{"a", 0, 6}}));
  Schedule();
  model_->Skip(plan_);
  events_.clear();
  EXPECT_TRUE(scheduler_->FailStep(Internal("lost"), &events_).ok());
  Add(WithMedia(MakeRequest(2, 8, 3), {{"a", 0, 6}}));
  EXPECT_EQ(Step(), "2:8");
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{0});
}

TEST_F(SchedulerMediaTest, WhatAStepOfAnAbortedRequestWasToEncodeIsNotUsed) {
  Start(MediaOptions());
  Add(WithMedia(MakeRequest(1, 8, 3), {{"a", 0, 6}}));
  Schedule();
  model_->Skip(plan_);
  events_.clear();
  ASSERT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_TRUE(scheduler_->FailStep(Internal("lost"), &events_).ok());
  Add(WithMedia(MakeRequest(2, 8, 3), {{"a", 0, 6}}));
  EXPECT_EQ(Step(), "2:8");
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{0});
}

TEST_F(SchedulerMediaTest, EqualTokensWithOtherMediaShareNoBlocks) {
  Start(MediaOptions());
  for (uint64_t id : {1, 11, 21}) {  // equal prompts
    Add(WithMedia(MakeRequest(id, 12, 2), {{id == 11 ? "b" : "a", 2, 4}}));
    Drain();
    EXPECT_EQ(events_.back().num_cached_tokens, id == 21 ? 8 : 0);
  }
}

TEST_F(SchedulerMediaTest, AnItemIsNotCutWithoutChunkedMediaInput) {
  SchedulerOptions options = MediaOptions();
  options.chunked_media_input = false;
  options.long_prefill_token_threshold = 5;
  Start(options);
  Add(WithMedia(MakeRequest(1, 16, 2), {{"a", 3, 8}}));
  EXPECT_EQ(Step(), "1:3");
  EXPECT_EQ(Step(), "1:8") << "more than the cap of a long prefill";
  EXPECT_EQ(Step(), "1:5");
}

TEST_F(SchedulerMediaTest, ARequestParksForAnAdapterSlotWithoutBlockingOthers) {
  SchedulerOptions options = SmallOptions();
  options.max_adapters = 1;
  Start(options);
  Add(WithAdapter(MakeRequest(1, 3, 3), 7));
  Add(WithAdapter(MakeRequest(2, 3, 2), 8));
  Add(WithAdapter(MakeRequest(3, 3, 2), 7));
  Add(MakeRequest(4, 3, 2));
  EXPECT_EQ(Step(), "1:3 3:3 4:3");
  EXPECT_EQ(num_parked(ParkReason::kAdapterSlot), 1);
  Step();
  Step();
  EXPECT_EQ(Step(), "2:3") << "adapter 7 is not needed any more";
  EXPECT_EQ(num_parked(ParkReason::kAdapterSlot), 0);
}

TEST_F(SchedulerMediaTest, ARequestParkedForAnAdapterSlotCanBeAborted) {
  SchedulerOptions options = SmallOptions();
  options.max_adapters = 1;
  Start(options);
  Add(WithAdapter(MakeRequest(1, 3, 2), 7));
  Add(WithAdapter(MakeRequest(2, 3, 2), 8));
  Add(WithAdapter(MakeRequest(3, 3, 2), 8));
  Step();
  events_.clear();
  EXPECT_TRUE(scheduler_->Abort(RequestId(2), &events_));
  Step();
  EXPECT_EQ(Step(), "3:3");
  Step();
  EXPECT_FALSE(scheduler_->HasWork());
}

// The one that was woken for the free slot is gone before it could take it.
TEST_F(SchedulerMediaTest, AbortWhilePausedWakesTheNextThatWaitsForTheAdapter) {
  SchedulerOptions options = SmallOptions();
  options.max_adapters = 1;
  Start(options);
  Add(WithAdapter(MakeRequest(1, 3, 2), 7));
  Add(WithAdapter(MakeRequest(2, 3, 2), 8));
  Add(WithAdapter(MakeRequest(3, 3, 2), 8));
  Step();
  scheduler_->Pause(PauseMode::kWait, &events_);
  Step();
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(num_parked(ParkReason::kPaused), 1);
  events_.clear();
  EXPECT_TRUE(scheduler_->Abort(RequestId(2), &events_));
  scheduler_->Resume();
  EXPECT_EQ(Step(), "3:3");
}

TEST_F(SchedulerMediaTest, EqualTokensWithOtherAdaptersShareNoBlocks) {
  SchedulerOptions options = SmallOptions();
  options.max_adapters = 2;
  Start(options);
  for (uint64_t id : {1, 11, 21, 31}) {
    Add(WithAdapter(MakeRequest(id, 12, 2), id == 11 ? 2 : (id == 31 ? 0 : 1)));
    Drain();
    EXPECT_EQ(events_.back().num_cached_tokens, id == 21 ? 8 : 0);
  }
}

struct Case {
  const char* policy;
  bool chunked_media_input;
  bool prefix_caching;
  bool decode_ahead;
};

class MediaPropertyTest : public SchedulerMediaTest, public testing::WithParamInterface<Case> {};

// Few slots for adapters, little room for outputs, a small pool: every request gets its tokens.
TEST_P(MediaPropertyTest, EveryRequestGetsItsTokens) {
  SchedulerOptions options = MediaOptions();
  options.policy = GetParam().policy;
  options.chunked_media_input = GetParam().chunked_media_input;
  options.decode_ahead = GetParam().decode_ahead;
  options.max_adapters = 2;
  options.max_waiting_requests = 100'000;
  options.kv_cache.num_blocks = 20;
  options.kv_cache.enable_prefix_caching = GetParam().prefix_caching;
  Start(options);
  std::mt19937 random(31);
  const auto pick = [&random](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  std::map<uint64_t, std::vector<int32_t>> expected, tokens;
  uint64_t id = 0;
  int64_t max_parked_encoder = 0, max_parked_adapter = 0;
  const auto step = [&] {
    events_.clear();
    Step();
    max_parked_encoder = std::max(max_parked_encoder, num_parked(ParkReason::kEncoderBudget));
    max_parked_adapter = std::max(max_parked_adapter, num_parked(ParkReason::kAdapterSlot));
    for (const RequestEvent& event : events_) {
      std::vector<int32_t>& got = tokens[event.id.value()];
      got.insert(got.end(), event.new_token_ids.begin(), event.new_token_ids.end());
      if (event.finish_reason != FinishReason::kLength) continue;
      ASSERT_EQ(got, expected[event.id.value()]);
      expected.erase(event.id.value());
    }
  };
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    if (pick(0, 2) == 0) {
      Request request = MakeRequest(++id, pick(1, 40), pick(1, 8));
      for (int32_t at = std::max(0, pick(-12, 12)); pick(0, 3) > 0; at += pick(0, 9)) {
        const int32_t content = pick(0, 9);
        if (at + 1 + content > static_cast<int32_t>(request.prompt_token_ids.size())) break;
        request.media.push_back({"m" + std::to_string(content), at, 1 + content});
        at += 1 + content;
      }
      if (pick(0, 1) == 0) request.adapter = step::AdapterId(static_cast<uint64_t>(pick(1, 4)));
      if (options.policy == "priority") request.priority = pick(0, 2);
      expected[id] = FakeModel::Continue(request.prompt_token_ids,
                                         static_cast<size_t>(request.sampling.max_tokens), 97);
      Add(request);
    }
    if (id > 0 && pick(0, 29) == 0) {
      const uint64_t victim = 1 + random() % id;
      std::vector<RequestEvent> events;
      if (scheduler_->Abort(RequestId(victim), &events)) expected.erase(victim);
    }
    step();
  }
  for (int i = 0; i < 20'000 && scheduler_->HasWork() && !HasFailure(); ++i) step();
  EXPECT_FALSE(scheduler_->HasWork());
  EXPECT_TRUE(expected.empty());
  EXPECT_GT(scheduler_->stats().num_preemptions, 5u);
  EXPECT_GT(max_parked_encoder, 0);
  EXPECT_GT(max_parked_adapter, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MediaPropertyTest,
                         testing::Values(Case{"fcfs", true, true, false},
                                         Case{"fcfs", false, false, false},
                                         Case{"priority", true, true, true},
                                         Case{"fair", false, true, false}));

}  // namespace
}  // namespace pagemill::scheduler
