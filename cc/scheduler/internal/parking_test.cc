#include "cc/scheduler/internal/parking.h"

#include <memory>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler::internal {
namespace {

using Requests = std::vector<RequestState*>;

class ParkingTest : public testing::Test {
 protected:
  // With equal prompts of three blocks, and the hashes of two.
  std::unique_ptr<RequestState> Make(uint64_t adapter = 0) {
    step::Request request;
    request.id = step::RequestId(++num_requests_);
    request.adapter = step::AdapterId(adapter);
    request.prompt_token_ids = std::vector<int32_t>(12, 1);
    auto state = std::make_unique<RequestState>(std::move(request));
    state->arrival = num_requests_;
    cache_.Hashes(*state->request, state->tokens(), 8, &state->blocks);
    return state;
  }
  void Run(RequestState* request, int32_t num_cached_tokens) {
    request->status = RequestStatus::kRunning;
    parking_.Start(request, num_cached_tokens);
  }
  void ExpectIntegrity() {
    const Status status = parking_.CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  static kv_cache::KvCacheOptions CacheOptions() {
    kv_cache::KvCacheOptions options;
    options.num_blocks = 9;
    options.block_size = 4;
    return options;
  }
  kv_cache::KvCacheManager cache_{CacheOptions()};
  Parking parking_{{.max_adapters = 1, .max_encoder_waiters = 2, .block_size = 4}};
  uint64_t num_requests_ = 0;
};

TEST_F(ParkingTest, ListsAreInTheOrderOfParking) {
  const auto a = Make(), b = Make(), c = Make();
  parking_.Add(a.get(), ParkReason::kHeld);
  parking_.Add(b.get(), ParkReason::kPaused);
  parking_.Add(c.get(), ParkReason::kHeld);
  EXPECT_EQ(parking_.size(), 3u);
  EXPECT_EQ(parking_.front(ParkReason::kHeld), a.get());
  EXPECT_EQ(a->status, RequestStatus::kParked);
  EXPECT_EQ(c->park_reason, ParkReason::kHeld);
  parking_.Leave(a.get());
  EXPECT_EQ(parking_.front(ParkReason::kHeld), c.get());
  EXPECT_EQ(parking_.size(ParkReason::kPaused), 1u);
  ExpectIntegrity();
}

TEST_F(ParkingTest, ARequestThatEndsLetsAnotherAdapterIn) {
  const auto first = Make(7), same = Make(7), other = Make(8);
  Run(first.get(), 0);
  EXPECT_TRUE(parking_.HasAdapterSlot(*same));
  EXPECT_FALSE(parking_.HasAdapterSlot(*other));
  parking_.Add(other.get(), ParkReason::kAdapterSlot);
  ExpectIntegrity();
  parking_.WakeForAdapters();
  EXPECT_FALSE(parking_.has_awake());
  parking_.Stop(first.get());
  parking_.WakeForAdapters();
  EXPECT_EQ(parking_.TakeAwake(), Requests{other.get()});
  parking_.Leave(other.get());
  EXPECT_EQ(parking_.size(), 0u);
  ExpectIntegrity();
}

TEST_F(ParkingTest, APrefixIsWaitedForUntilItIsComputed) {
  const auto producer = Make(), waiter = Make();
  EXPECT_EQ(parking_.FindProducer(*waiter, 0), nullptr);
  Run(producer.get(), 0);
  EXPECT_EQ(parking_.FindProducer(*waiter, 0), producer.get());
  EXPECT_EQ(parking_.FindProducer(*waiter, 4), nullptr) << "another block than the one computed";
  parking_.AddBehind(producer.get(), waiter.get());
  ExpectIntegrity();
  producer->num_computed_tokens = 4;
  parking_.Advance(producer.get());
  EXPECT_FALSE(parking_.has_awake());
  producer->num_computed_tokens = 8;
  parking_.Advance(producer.get());
  EXPECT_EQ(parking_.TakeAwake(), Requests{waiter.get()});
  parking_.Leave(waiter.get());
  ExpectIntegrity();
}

TEST_F(ParkingTest, ARequestThatLeavesIsNotWoken) {
  const auto producer = Make(), waiter = Make(), other = Make();
  Run(producer.get(), 0);
  parking_.AddBehind(producer.get(), waiter.get());
  parking_.AddBehind(producer.get(), other.get());
  parking_.Leave(waiter.get());  // aborted
  parking_.Stop(producer.get());
  parking_.Leave(other.get());  // aborted when it was awake
  EXPECT_FALSE(parking_.has_awake());
  ExpectIntegrity();
}

TEST_F(ParkingTest, RequestsThatReadNoPrefixWaitForNone) {
  const auto producer = Make();
  Run(producer.get(), 0);
  step::Request request = *producer->request;
  request.skip_reading_prefix_cache = true;
  RequestState waiter(request);
  cache_.Hashes(request, waiter.tokens(), 8, &waiter.blocks);
  EXPECT_EQ(parking_.FindProducer(waiter, 0), nullptr);
}

TEST_F(ParkingTest, AFewWaitForTheEncoder) {
  const auto a = Make(), b = Make();
  parking_.Add(a.get(), ParkReason::kEncoderBudget);
  EXPECT_TRUE(parking_.HasEncoderPlace());
  parking_.Add(b.get(), ParkReason::kEncoderBudget);
  EXPECT_FALSE(parking_.HasEncoderPlace());
}

}  // namespace
}  // namespace pagemill::scheduler::internal
