// Many threads on one engine: submitters, aborters, pauses, resets, failures, deadlines, input in
// parts, held starts, statistics and one reader.
// Run it under the thread sanitizer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using scheduler::PauseMode;
using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;

constexpr int kNumSubmitters = 4;
constexpr int kRequestsEach = 400;

// So few blocks that requests are preempted all the time.
RunnerLimits TightLimits(int32_t max_draft_tokens) {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.num_blocks = 25;
  limits.max_draft_tokens = max_draft_tokens;
  return limits;
}

struct Ahead {
  int32_t max_in_flight_steps;
  int32_t max_draft_tokens;
  int64_t host_bytes = 0;  // of a tier behind the pool
};

class EngineStress : public testing::TestWithParam<Ahead> {
 protected:
  void Submit(int thread) {
    std::mt19937 random(static_cast<uint32_t>(thread));
    for (int i = 0; i < kRequestsEach; ++i) {
      Request request;
      const RequestId id(static_cast<uint64_t>(thread) * 1000000 + i);
      request.id = id;
      const uint32_t size = 1 + random() % 30;
      for (uint32_t t = 0; t < size; ++t) {
        request.prompt_token_ids.push_back(static_cast<int32_t>(t < size / 2 ? t : random() % 97));
      }
      request.sampling.max_tokens = 1 + static_cast<int32_t>(random() % 20);
      {
        std::lock_guard lock(mutex_);
        expected_[request.id] = FakeModel::Continue(
            request.prompt_token_ids, static_cast<size_t>(request.sampling.max_tokens), 97);
      }
      SubmitInParts(std::move(request), &random);
      if (random() % 8 == 0) engine_->Abort(id);
      if (random() % 50 == 0) runner_.FailNextCollect(Internal("injected"));
      if (random() % 50 == 0) runner_.FailNextExecute(Internal("injected"));
      if (random() % 50 == 0) runner_.FailNextSample(Internal("injected"));
      if (random() % 40 == 0) engine_->ResetPrefixCache(/*preempt_running=*/random() % 2 == 0);
      if (random() % 60 == 0) {
        engine_->Pause(random() % 10 == 0  ? PauseMode::kAbort
                       : random() % 2 == 0 ? PauseMode::kKeep
                                           : PauseMode::kWait);
        engine_->WaitPaused(0.001);
        engine_->Resume();
      }
      if (random() % 10 == 0) {
        EXPECT_GE(engine_->stats().num_waiting, 0);
      }
    }
  }

  // All of it at once, or some of the prompt later, or held for a while, or with a deadline.
  void SubmitInParts(Request request, std::mt19937* random) {
    const RequestId id = request.id;
    const std::vector<int32_t> prompt = request.prompt_token_ids.ToVector();
    std::vector<int32_t> later;
    request.streaming_input = (*random)() % 4 == 0;
    if (request.streaming_input) {
      const auto middle = prompt.begin() + static_cast<ptrdiff_t>((prompt.size() + 1) / 2);
      request.prompt_token_ids = std::vector<int32_t>(prompt.begin(), middle);
      later.assign(middle, prompt.end());
    }
    request.starts_held = (*random)() % 4 == 0;
    if ((*random)() % 20 == 0) request.deadline_us = clock_.NowNanos() / 1000 + (*random)() % 3000;
    while (true) {
      const Status status = engine_->Submit(request);
      if (status.ok()) break;
      ASSERT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
      std::this_thread::yield();
    }
    if (request.starts_held) engine_->Release(id);
    if (!request.streaming_input) return;
    const Status status = engine_->Extend(id, {later});
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kNotFound) << status.ToString();
  }

  void Read(const RequestOutput& output) {
    std::lock_guard lock(mutex_);
    const auto found = expected_.find(output.request_id);
    ASSERT_NE(found, expected_.end()) << "an output behind the last one";
    std::vector<int32_t>& got = got_[output.request_id];
    got.insert(got.end(), output.new_token_ids.begin(), output.new_token_ids.end());
    ASSERT_LE(got.size(), found->second.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), found->second.begin()));
    if (!output.finished()) return;
    ++num_finished_;
    if (output.finish_reason == FinishReason::kLength) {
      ++num_complete_;
      EXPECT_EQ(got, found->second);
    }
    expected_.erase(found);
  }

  FakeRunner runner_{TightLimits(GetParam().max_draft_tokens)};
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::map<RequestId, std::vector<int32_t>> expected_, got_;
  int num_finished_ = 0;
  int num_complete_ = 0;
};

TEST_P(EngineStress, EveryRequestEndsOnceWithItsTokens) {
  EngineOptions options;
  options.max_waiting_requests = 20;
  options.max_in_flight_steps = GetParam().max_in_flight_steps;
  options.kv_tiers.host_bytes = GetParam().host_bytes;
  options.check_integrity = true;
  auto engine = Engine::Create(options, &runner_, &clock_, {});
  ASSERT_TRUE(engine.ok());
  engine_ = std::move(*engine);
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumSubmitters; ++t) threads.emplace_back([this, t] { Submit(t); });
  while (num_finished_ < kNumSubmitters * kRequestsEach && !HasFailure()) {
    for (const RequestOutput& output : engine_->Wait(60)) Read(output);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->WaitIdle(60));
  // What is still being stored is held until it is.
  for (int i = 0; i < 5000 && engine_->stats().kv_blocks_used > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.num_submitted, stats.finished_stop + stats.finished_length +
                                     stats.finished_abort + stats.finished_error);
  EXPECT_GT(num_complete_, kNumSubmitters * kRequestsEach / 2);
  EXPECT_GT(stats.num_preemptions, 0u);
  EXPECT_EQ(stats.kv_blocks_loaded > 0, GetParam().host_bytes > 0);
  engine_->Shutdown();
  EXPECT_EQ(runner_.violation(), "");
}

INSTANTIATE_TEST_SUITE_P(All, EngineStress,
                         testing::Values(Ahead{1, 0}, Ahead{2, 0}, Ahead{1, 4}, Ahead{2, 4},
                                         Ahead{4, 4}, Ahead{1, 0, 1 << 14}, Ahead{2, 4, 1 << 14}),
                         [](const auto& info) {
                           return "Steps" + std::to_string(info.param.max_in_flight_steps) +
                                  "Drafts" + std::to_string(info.param.max_draft_tokens) +
                                  (info.param.host_bytes > 0 ? "Tier" : "");
                         });

}  // namespace
}  // namespace pagemill::engine
