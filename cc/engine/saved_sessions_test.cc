// Sessions that outlive their engine.
#include "cc/engine/saved_sessions.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FakeModel;
using step::Request;
using step::RequestId;

constexpr double kLong = 60;  // seconds: longer than any step takes on a loaded machine

Request MakeRequest(uint64_t id, int32_t seed = 5) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < 33; ++i) request.prompt_token_ids.push_back((i * seed + 7) % 97);
  request.sampling.max_tokens = 3;
  return request;
}

class SavedSessionsTest : public testing::Test {
 protected:
  void StartEngine() {
    options_.check_integrity = true;
    auto engine = Engine::Create(options_, &runner_, &clock_, {});
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }

  // The engine is new, and so is the content of its pages.
  void Restart() {
    engine_.reset();
    runner_.Restart();
    StartEngine();
  }

  // Checks the tokens; returns how many of the prompt were cached.
  int32_t Answer(const Request& request) {
    EXPECT_TRUE(engine_->Submit(request).ok());
    std::vector<int32_t> tokens;
    int32_t cached = 0;
    for (bool done = false; !done;) {
      const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) break;
      for (const RequestOutput& output : outputs) {
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        cached = std::max(cached, output.num_cached_tokens);
        done = output.finished();
      }
    }
    EXPECT_EQ(tokens, FakeModel::Continue(request.prompt_token_ids, 3, 97));
    return cached;
  }

  void SetUp() override {
    options_.kv_tiers.fingerprint = [] { return std::string("a model"); };
    StartEngine();
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_EQ(runner_.violation(), "");
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  const std::string path_ = testing::TempDir() + "saved_sessions_test_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
  EngineOptions options_;
  FakeRunner runner_{FakeRunner::DefaultLimits()};
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SavedSessionsTest, ASessionSurvivesARestart) {
  Request request = MakeRequest(1);
  EXPECT_EQ(Answer(request), 0);
  const auto saved = engine_->SaveSession(path_, request);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_EQ(*saved, 32);
  Restart();
  const auto restored = engine_->RestoreSession(path_);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(restored->token_ids, request.prompt_token_ids);
  EXPECT_EQ(restored->num_cached_tokens, 32);
  EXPECT_EQ(Answer(request), 32) << "only the last token is computed";
}

TEST_F(SavedSessionsTest, WhatIsCachedAlreadyStays) {
  const Request request = MakeRequest(1);
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  const auto restored = engine_->RestoreSession(path_);
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->num_cached_tokens, 32);
  EXPECT_EQ(Answer(request), 32);
}

TEST_F(SavedSessionsTest, ASaltSeparatesSessions) {
  Request request = MakeRequest(1);
  request.cache_salt = "tenant";
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  Restart();
  const auto without = engine_->RestoreSession(path_);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->num_cached_tokens, 0) << "no block has this name";
  Request like;
  like.cache_salt = "tenant";
  EXPECT_EQ(engine_->RestoreSession(path_, like)->num_cached_tokens, 32);
  EXPECT_EQ(Answer(request), 32);
}

TEST_F(SavedSessionsTest, StepsGoOnWhileSessionsAreSavedAndRestored) {
  const Request request = MakeRequest(1);
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  std::thread client([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(engine_->SaveSession(path_ + ".other", request).ok());
      EXPECT_TRUE(engine_->RestoreSession(path_).ok());
    }
  });
  for (uint64_t i = 0; i < 50; ++i) Answer(MakeRequest(100 + i, static_cast<int32_t>(i % 7) + 2));
  client.join();
  EXPECT_EQ(engine_->stats().kv_blocks_used, 0);
  std::filesystem::remove(path_ + ".other");
}

TEST_F(SavedSessionsTest, TokensThatWereNotRunAreNotFound) {
  EXPECT_EQ(engine_->SaveSession(path_, MakeRequest(1)).status().code(), StatusCode::kNotFound);
}

TEST_F(SavedSessionsTest, AMissingFileIsNotFound) {
  EXPECT_EQ(engine_->RestoreSession(path_).status().code(), StatusCode::kNotFound);
}

TEST_F(SavedSessionsTest, ADamagedPageIsComputed) {
  const Request request = MakeRequest(1);
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  {
    // The last byte of the last page; the digest of 16 bytes follows.
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-17, std::ios::end);
    const int byte = file.peek();
    file.seekp(-17, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
  }
  Restart();
  const auto restored = engine_->RestoreSession(path_);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(restored->num_cached_tokens, 28);
  EXPECT_EQ(Answer(request), 28);
}

TEST_F(SavedSessionsTest, ASessionOfAnotherModelIsRefused) {
  const Request request = MakeRequest(1);
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  options_.kv_tiers.fingerprint = [] { return std::string("another model"); };
  Restart();
  EXPECT_EQ(engine_->RestoreSession(path_).status().code(), StatusCode::kFailedPrecondition);
}

// The weights of another rank cannot be known if it has died.
TEST_F(SavedSessionsTest, WithoutAFingerprintNothingIsHeld) {
  bool dead = true;
  options_.kv_tiers.fingerprint = [&dead]() -> StatusOr<std::string> {
    if (dead) return Unavailable("rank 1 has died");
    return std::string("a model");
  };
  Restart();
  const Request request = MakeRequest(1);
  Answer(request);
  EXPECT_EQ(engine_->SaveSession(path_, request).status(), Unavailable("rank 1 has died"));
  EXPECT_EQ(engine_->RestoreSession(path_).status(), Unavailable("rank 1 has died"));
  EXPECT_TRUE(engine_->ResetPrefixCache());
  EXPECT_EQ(Answer(request), 0) << "a held prefix would have stayed";
  dead = false;
  EXPECT_TRUE(engine_->SaveSession(path_, request).ok());
}

TEST_F(SavedSessionsTest, RefusesWithoutFingerprintOrPrefixCache) {
  options_.kv_tiers.fingerprint = nullptr;
  Restart();
  EXPECT_EQ(engine_->RestoreSession(path_).status().code(), StatusCode::kFailedPrecondition);
  options_.kv_tiers.fingerprint = [] { return std::string("a model"); };
  options_.enable_prefix_caching = false;
  Restart();
  const Status status = engine_->SaveSession(path_, MakeRequest(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--enable-prefix-caching"), std::string::npos);
}

TEST_F(SavedSessionsTest, RefusesAfterShutdown) {
  const Request request = MakeRequest(1);
  Answer(request);
  ASSERT_TRUE(engine_->SaveSession(path_, request).ok());
  engine_->Shutdown();
  EXPECT_EQ(engine_->SaveSession(path_, request).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine_->RestoreSession(path_).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pagemill::engine
