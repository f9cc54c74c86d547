#include "cc/kv_cache/kv_cache_options.h"

#include <cmath>

#include "cc/kv_cache/testing/small_caches.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

TEST(KvCacheOptions, RecentStatesBoundTheTokensThatCanBeRejected) {
  EXPECT_GT(
      Options(9, {{"full"}, {.kind = "sliding_window", .window_tokens = 4}}).MaxRejectedTokens(),
      1000000);
  EXPECT_EQ(Options(9, {{"full"}, {"state_space"}}).MaxRejectedTokens(), 0);
  EXPECT_EQ(Options(9, {{.kind = "state_space", .recent_states = 5}, {"full"}}).MaxRejectedTokens(),
            4);
}

TEST(KvCacheOptions, RefusalsNameTheField) {
  EXPECT_TRUE(Options(2).Validate().ok());
  const auto message = [](KvCacheOptions options) { return options.Validate().message(); };
  EXPECT_NE(message(Options(1)).find("num_blocks"), std::string::npos);
  EXPECT_NE(message(Options(2, {{"fuller"}})).find("fuller"), std::string::npos);
  KvCacheOptions options = Options(2);
  options.block_size = 0;
  EXPECT_NE(message(options).find("block_size"), std::string::npos);
  options = Options(4);
  options.eviction = "fifo";
  EXPECT_NE(message(options).find("fifo"), std::string::npos);
  options = Options(4);
  options.max_events = -1;
  EXPECT_NE(message(options).find("max_events"), std::string::npos);
  for (double share : {-0.1, 1.1, std::nan("")}) {
    options = Options(4);
    options.block_age_sample = share;
    EXPECT_NE(message(options).find("block_age_sample"), std::string::npos) << share;
  }
  options = Options(4);
  options.max_step_tokens = -1;
  EXPECT_NE(message(options).find("max_step_tokens"), std::string::npos);
  options = Options(4);
  options.max_steps_in_flight = 0;
  EXPECT_NE(message(options).find("max_steps_in_flight"), std::string::npos);
  options = Options(4);
  options.max_pinned_blocks = 3;
  EXPECT_NE(message(options).find("max_pinned_blocks"), std::string::npos);
}

TEST(KvCacheOptionsTest, CountsThePagesThatARequestHoldsAtMost) {
  KvCacheOptions options = {.num_blocks = 2};
  options.groups = {{.kind = "full"},
                    {.kind = "sliding_window", .pages_per_block = 2, .window_tokens = 64}};
  EXPECT_EQ(options.MaxPagesOfRequest(40), 3 + 2 * 3);
  // The bound of steps is not known: a request may fill all of its blocks at once.
  EXPECT_EQ(options.MaxPagesOfRequest(4096), 256 + 2 * 256);
  options.max_step_tokens = 128;
  options.max_steps_in_flight = 1;
  // 63 tokens before the step, its 128, and a block that is not full: 207 tokens, anywhere in 14.
  EXPECT_EQ(options.MaxPagesOfRequest(4096), 256 + 2 * 14);
  options.groups.clear();
  EXPECT_EQ(options.MaxPagesOfRequest(4096), 0);
}

}  // namespace
}  // namespace pagemill::kv_cache
