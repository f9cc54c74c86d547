// Several clients of one engine.
#include "cc/engine/engine_client.h"

#include <poll.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;

constexpr double kLong = 30;  // seconds; nothing waits so long

Request MakeRequest(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

struct Heard {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kError;
};

// Reads until `count` requests have ended.
std::map<uint64_t, Heard> ReadAll(EngineClient* client, size_t count) {
  std::map<uint64_t, Heard> heard;
  for (size_t ended = 0; ended < count;) {
    const std::vector<RequestOutput> outputs = client->Wait(kLong);
    if (outputs.empty()) return heard;
    for (const RequestOutput& output : outputs) {
      Heard& of = heard[output.request_id.value()];
      of.tokens.insert(of.tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      if (!output.finished()) continue;
      of.reason = *output.finish_reason;
      ++ended;
    }
  }
  return heard;
}

class EngineClientTest : public testing::Test {
 protected:
  void Start(const EngineOptions& options = {}) {
    EngineOptions checked = options;
    checked.check_integrity = true;
    engine_ = *Engine::Create(checked, &runner_, &clock_, {});
  }
  std::vector<int32_t> Expected(const std::vector<int32_t>& prompt, size_t count) {
    return FakeModel::Continue(prompt, count, 97);
  }
  void ExpectIdle() {
    EXPECT_TRUE(engine_->WaitIdle(kLong));
    EXPECT_EQ(runner_.violation(), "");
  }

  SteadyClock clock_;
  FakeRunner runner_{FakeRunner::DefaultLimits()};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineClientTest, EqualIdsOfDifferentClientsAreDifferentRequests) {
  Start();
  const std::unique_ptr<EngineClient> a = *engine_->NewClient(), b = *engine_->NewClient();
  ASSERT_TRUE(a->Submit(MakeRequest(7, {1, 2}, 5)).ok());
  ASSERT_TRUE(b->Submit(MakeRequest(7, {3, 4}, 9)).ok());
  ASSERT_TRUE(engine_->Submit(MakeRequest(7, {5, 6}, 3)).ok());
  EXPECT_EQ(ReadAll(a.get(), 1)[7].tokens, Expected({1, 2}, 5));
  EXPECT_EQ(ReadAll(b.get(), 1)[7].tokens, Expected({3, 4}, 9));
  ExpectIdle();
  EXPECT_TRUE(a->Poll().empty());
  EXPECT_EQ(engine_->Poll().at(0).request_id, RequestId(7));
}

TEST_F(EngineClientTest, IdsAboveTheLimitReachNoOtherClient) {
  Start();
  runner_.Hold();
  const std::unique_ptr<EngineClient> a = *engine_->NewClient();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, {1}, 4)).ok());
  ASSERT_TRUE(a->Submit(MakeRequest(1, {1}, 4)).ok());
  const uint64_t other = ClientOutputs::EngineId(ClientNumber(1), RequestId(1))->value();
  EXPECT_EQ(engine_->Submit(MakeRequest(other, {1}, 4)).code(), StatusCode::kInvalidArgument);
  engine_->Abort(RequestId(other));
  EXPECT_EQ(engine_->Extend(RequestId(other), {.token_ids = {1}}).code(), StatusCode::kNotFound);
  runner_.Release();
  EXPECT_EQ(ReadAll(a.get(), 1)[1].reason, FinishReason::kLength);
}

TEST_F(EngineClientTest, ClosingAClientAbortsItsRequestsOnly) {
  Start();
  runner_.Hold();
  std::unique_ptr<EngineClient> a = *engine_->NewClient();
  const std::unique_ptr<EngineClient> b = *engine_->NewClient();
  for (uint64_t id = 0; id < 20; ++id) {  // some run, some wait
    ASSERT_TRUE(a->Submit(MakeRequest(id, {1, 2}, 20)).ok());
  }
  ASSERT_TRUE(b->Submit(MakeRequest(3, {3, 4}, 9)).ok());
  a.reset();
  runner_.Release();
  EXPECT_EQ(ReadAll(b.get(), 1)[3].tokens, Expected({3, 4}, 9));
  ExpectIdle();
  EXPECT_EQ(engine_->stats().finished_abort, 20u);
  EXPECT_EQ(engine_->stats().num_unread_outputs, 0);
  const std::unique_ptr<EngineClient> c = *engine_->NewClient();  // has the number of the first
  ASSERT_TRUE(c->Submit(MakeRequest(3, {1, 2}, 5)).ok());
  EXPECT_EQ(ReadAll(c.get(), 1)[3].tokens, Expected({1, 2}, 5));
}

TEST_F(EngineClientTest, AClientThatDoesNotReadStopsItselfOnly) {
  EngineOptions options;
  options.max_waiting_requests = 2;  // so at most 10 unread
  Start(options);
  const std::unique_ptr<EngineClient> a = *engine_->NewClient(), b = *engine_->NewClient();
  for (uint64_t id = 0; id < 10; ++id) {
    ASSERT_TRUE(a->Submit(MakeRequest(id, {1, 2}, 1)).ok());
    ExpectIdle();
  }
  EXPECT_EQ(a->Submit(MakeRequest(10, {1, 2}, 1)).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(b->Submit(MakeRequest(0, {1, 2}, 5)).ok());
  EXPECT_EQ(ReadAll(b.get(), 1)[0].tokens, Expected({1, 2}, 5));
  EXPECT_EQ(ReadAll(a.get(), 10).size(), 10u);
  EXPECT_TRUE(a->Submit(MakeRequest(10, {1, 2}, 1)).ok());
}

TEST_F(EngineClientTest, ADescriptorIsReadableForItsClientOnly) {
  Start();
  const std::unique_ptr<EngineClient> a = *engine_->NewClient(), b = *engine_->NewClient();
  if (a->output_fd() < 0) return;  // this platform has none
  ASSERT_TRUE(a->Submit(MakeRequest(1, {1, 2}, 5)).ok());
  pollfd fds[] = {{.fd = a->output_fd(), .events = POLLIN, .revents = 0},
                  {.fd = b->output_fd(), .events = POLLIN, .revents = 0}};
  EXPECT_EQ(poll(fds, 2, 30'000), 1);
  EXPECT_NE(fds[0].revents, 0);
}

TEST_F(EngineClientTest, ClientsMayCloseAfterShutdown) {
  Start();
  std::unique_ptr<EngineClient> a = *engine_->NewClient();
  ASSERT_TRUE(a->Submit(MakeRequest(1, {1, 2}, 500)).ok());
  engine_->Shutdown();
  EXPECT_EQ(a->Submit(MakeRequest(2, {1, 2}, 5)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(ReadAll(a.get(), 1).size(), 1u);
  a.reset();
}

// Threads that open a client, submit, read some of it, abort, and close it early or late.
TEST_F(EngineClientTest, ManyClientsComeAndGo) {
  Start();
  std::atomic<int> wrong = 0;
  const auto use_clients = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 40; ++round) {
      const std::unique_ptr<EngineClient> client = *engine_->NewClient();
      std::map<uint64_t, std::vector<int32_t>> prompts;
      const size_t count = 1 + random() % 6;
      for (uint64_t id = 0; id < count; ++id) {
        prompts[id] = {static_cast<int32_t>(random() % 97), static_cast<int32_t>(id)};
        if (!client->Submit(MakeRequest(id, prompts[id], 8)).ok()) ++wrong;
      }
      const bool aborts = random() % 2 == 0;
      if (aborts) client->Abort(RequestId(random() % count));
      if (random() % 3 == 0) continue;  // closed with all of it running
      for (const auto& [id, heard] : ReadAll(client.get(), count)) {
        const std::vector<int32_t> whole = Expected(prompts[id], 8);
        const bool is_prefix = heard.tokens.size() <= whole.size() &&
                               std::equal(heard.tokens.begin(), heard.tokens.end(), whole.begin());
        if (!is_prefix) ++wrong;
        if (!aborts && heard.tokens.size() != whole.size()) ++wrong;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) threads.emplace_back(use_clients, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  ExpectIdle();
  EXPECT_EQ(engine_->stats().num_unread_outputs, 0);
}

}  // namespace
}  // namespace pagemill::engine
