// EngineStats has the ages of KV blocks, by the engine's clock.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

RunnerLimits EightBlocksOfFourTokens() {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.num_blocks = 9;
  limits.max_model_len = 32;
  return limits;
}

class KvBlockAgesTest : public testing::Test {
 protected:
  void Start(double sample) {
    EngineOptions options;
    options.kv_block_age_sample = sample;
    options.check_integrity = true;
    engine_ = *Engine::Create(options, &runner_, &clock_, {});
  }
  // Computes the prompt, which begins with `token` and has `num_tokens` tokens.
  void Serve(int32_t token, size_t num_tokens) {
    step::Request request;
    request.id = step::RequestId(next_id_++);
    request.prompt_token_ids = std::vector<int32_t>(num_tokens, token);
    request.sampling.max_tokens = 1;
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
    ASSERT_TRUE(engine_->WaitIdle(60));
  }
  void PassSeconds(int64_t seconds) { clock_.AdvanceNanos(seconds * 1'000'000'000); }

  FakeClock clock_;
  FakeRunner runner_{EightBlocksOfFourTokens()};
  std::unique_ptr<Engine> engine_;
  uint64_t next_id_ = 1;
};

TEST_F(KvBlockAgesTest, OfReuseAndEviction) {
  Start(1);
  Serve(5, 16);
  PassSeconds(10);
  Serve(5, 16);  // finds three blocks; at least one token is computed again
  const DurationHistogram gaps = engine_->stats().kv_block_reuse_gap;
  EXPECT_EQ(gaps.counts[DurationHistogram::BucketOf(10)], 3u);
  EXPECT_EQ(gaps.sum_s, 30);
  PassSeconds(20);
  Serve(6, 28);  // takes the four free blocks, and three of the first prompt
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.kv_block_reuse_gap.sum_s, 30);
  EXPECT_EQ(stats.kv_block_lifetime.counts[DurationHistogram::BucketOf(30)], 3u);
  EXPECT_EQ(stats.kv_block_lifetime.sum_s, 90);
  EXPECT_EQ(stats.kv_block_idle_before_evict.sum_s, 60);
}

TEST_F(KvBlockAgesTest, AreNotMeasuredByDefault) {
  Start(EngineOptions().kv_block_age_sample);
  Serve(5, 16);
  Serve(5, 16);
  const EngineStats stats = engine_->stats();
  EXPECT_TRUE(stats.kv_block_reuse_gap.counts.empty());
  EXPECT_TRUE(stats.kv_block_lifetime.counts.empty());
}

TEST_F(KvBlockAgesTest, AShareIsFromZeroToOne) {
  for (double sample : {-0.5, 1.5}) {
    EngineOptions options;
    options.kv_block_age_sample = sample;
    const Status status = Engine::Create(options, &runner_, &clock_, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("kv_block_age_sample"), std::string::npos);
  }
}

}  // namespace
}  // namespace pagemill::engine
