#include "cc/scheduler/prefixes_in_flight.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

constexpr int32_t kBlockSize = 4;
using Requests = std::vector<RequestState*>;

class PrefixesInFlightTest : public testing::Test {
 protected:
  // Has the hashes of `num_blocks` blocks, of which the first `num_shared` are those of all others.
  std::unique_ptr<RequestState> Make(int32_t num_blocks, int32_t num_shared) {
    step::Request request;
    std::vector<int32_t> prompt(static_cast<size_t>(num_blocks * kBlockSize), ++last_token_);
    std::fill_n(prompt.begin(), num_shared * kBlockSize, 0);
    request.prompt_token_ids = std::move(prompt);
    auto state = std::make_unique<RequestState>(std::move(request));
    cache_.Hashes(*state->request, state->tokens(), num_blocks * kBlockSize, &state->blocks);
    return state;
  }
  std::unique_ptr<RequestState> MakeRunning() {
    auto state = Make(4, 4);
    state->status = RequestStatus::kRunning;
    return state;
  }
  void TearDown() override { EXPECT_TRUE(prefixes_.CheckIntegrity().ok()); }

  kv_cache::KvCacheManager cache_{{.num_blocks = 16, .block_size = kBlockSize}};
  PrefixesInFlight prefixes_;
  Requests awake_;
  int32_t last_token_ = 0;
};

TEST_F(PrefixesInFlightTest, WhoWaitsIsAwakeWhenAllSharedBlocksAreComputed) {
  const auto computer = MakeRunning(), shares_two = Make(4, 2), shares_three = Make(4, 3);
  prefixes_.Announce(computer.get(), 0);
  for (RequestState* request : {shares_two.get(), shares_three.get()}) {
    ASSERT_EQ(prefixes_.FindComputer(*request, 0), computer.get());
    prefixes_.Wait(request, computer.get());
  }
  prefixes_.Advance(computer.get(), 1, &awake_);
  EXPECT_EQ(awake_, Requests{});
  prefixes_.Advance(computer.get(), 2, &awake_);
  EXPECT_EQ(awake_, Requests{shares_two.get()});
  prefixes_.Withdraw(computer.get(), &awake_);
  EXPECT_EQ(awake_, (Requests{shares_two.get(), shares_three.get()}));
}

// A request that was ahead may be overtaken, or met, by one that found less in the prefix cache.
TEST_F(PrefixesInFlightTest, NobodyWaitsForAComputerWhoseNextBlockIsAnothers) {
  const auto ahead = MakeRunning(), behind = MakeRunning(), waiter = Make(4, 4);
  prefixes_.Announce(ahead.get(), 2);
  prefixes_.Announce(behind.get(), 0);
  prefixes_.Wait(waiter.get(), behind.get());
  prefixes_.Advance(behind.get(), 2, &awake_);
  EXPECT_EQ(awake_, Requests{waiter.get()});
  EXPECT_EQ(prefixes_.FindComputer(*waiter, 2), ahead.get());
  prefixes_.Withdraw(ahead.get(), &awake_);
}

}  // namespace
}  // namespace pagemill::scheduler
