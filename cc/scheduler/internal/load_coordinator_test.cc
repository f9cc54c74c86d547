#include "cc/scheduler/internal/load_coordinator.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler::internal {
namespace {

using kv_cache::BlockContent;
using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using Requests = std::vector<RequestState*>;

// Has a number of blocks of every sequence, or does not know yet.
class FakeConnector : public kv_cache::KvConnector {
 public:
  kv_cache::ConnectorMatch Lookup(const step::Request&, const kv_cache::PrefixQuery& query,
                                  std::vector<KvTransfer>* transfers) override {
    if (probes) transfers->push_back({.direction = KvTransfer::Direction::kProbe});
    const auto wanted = static_cast<int32_t>(query.hashes().size());
    return {.ask_again = probes, .num_blocks = std::min(num_blocks, wanted)};
  }
  void Transfer(KvTransfer::Direction direction, std::span<const BlockContent> blocks,
                std::vector<KvTransfer>* transfers) override {
    transfers->push_back({.direction = direction, .blocks = {blocks.begin(), blocks.end()}});
  }
  void Finish(const KvTransfer&, const KvTransferResult&) override { ++num_finished; }

  int32_t num_blocks = 2;
  bool probes = false;
  int num_finished = 0;
};

class LoadCoordinatorTest : public testing::Test {
 protected:
  LoadCoordinatorTest() {
    step::Request request;
    request.prompt_token_ids = std::vector<int32_t>(14, 1);
    request_ = std::make_unique<RequestState>(std::move(request));
    EXPECT_TRUE(loads_.SetConnector(&connector_).ok());
  }
  std::optional<ParkReason> Fetch(int32_t promised = 0) {
    const kv_cache::PrefixMatch match =
        cache_.FindPrefix(*request_->request, request_->tokens(), &request_->blocks);
    const auto reason = loads_.Fetch(request_.get(), match, promised, /*num_plans=*/5);
    if (reason) parking_.Add(request_.get(), *reason);
    return reason;
  }
  std::vector<KvTransfer> Take(uint64_t oldest_step) {
    std::vector<KvTransfer> transfers;
    loads_.Take(oldest_step, &transfers);
    return transfers;
  }
  void Finish(const KvTransfer& transfer, int32_t num_blocks_done, Status status = OkStatus()) {
    const KvTransferResult result{transfer.id, num_blocks_done, std::move(status)};
    loads_.Finish({&result, 1});
  }
  int32_t NumCached() {
    return cache_.FindPrefix(*request_->request, request_->tokens(), &request_->blocks).num_tokens;
  }
  Status CheckIntegrity() {
    std::vector<const kv_cache::RequestBlocks*> holders{&request_->blocks};
    PAGEMILL_RETURN_IF_ERROR(loads_.CheckIntegrity(parking_, &holders));
    return cache_.CheckIntegrity(holders);
  }

  static kv_cache::KvCacheOptions CacheOptions() {
    kv_cache::KvCacheOptions options;
    options.num_blocks = 9;
    options.block_size = 4;
    return options;
  }
  FakeConnector connector_;
  SchedulerStats counters_;
  kv_cache::KvCacheManager cache_{CacheOptions()};
  Parking parking_{{.max_encoder_waiters = 1, .block_size = 4}};
  LoadCoordinator loads_{CacheOptions(), /*most_abandoned=*/3, &cache_, &counters_};
  std::unique_ptr<RequestState> request_;
};

TEST_F(LoadCoordinatorTest, WhatIsLoadedEntersThePrefixCache) {
  EXPECT_EQ(Fetch(), ParkReason::kKvLoad);
  EXPECT_TRUE(CheckIntegrity().ok());
  EXPECT_TRUE(Take(5).empty()) << "a step in flight may still write to the pages";
  const std::vector<KvTransfer> transfers = Take(6);
  ASSERT_EQ(transfers.size(), 1u);
  EXPECT_EQ(transfers[0].blocks.size(), 2u);
  Finish(transfers[0], 2);
  EXPECT_EQ(loads_.TakeAwake(), Requests{request_.get()});
  EXPECT_EQ(NumCached(), 8);
  EXPECT_EQ(counters_.kv_loaded_tokens, 8u);
  parking_.Leave(request_.get());
  EXPECT_EQ(Fetch(), std::nullopt) << "it asks once before it runs";
}

TEST_F(LoadCoordinatorTest, WhatDidNotComeIsComputed) {
  ASSERT_EQ(Fetch(), ParkReason::kKvLoad);
  Finish(Take(6)[0], 2, Internal("the medium is gone"));  // then one of two is missing at least
  EXPECT_EQ(loads_.TakeAwake(), Requests{request_.get()});
  EXPECT_EQ(NumCached(), 4);
  EXPECT_EQ(counters_.num_failed_kv_loads, 1u);
}

TEST_F(LoadCoordinatorTest, WithoutRoomNothingIsLoaded) {
  EXPECT_EQ(Fetch(/*promised=*/5), std::nullopt);
  EXPECT_EQ(loads_.num_in_flight(), 0u);
}

TEST_F(LoadCoordinatorTest, TheBlocksOfARequestThatEndedAreFreeWhenTheLoadIs) {
  ASSERT_EQ(Fetch(), ParkReason::kKvLoad);
  const KvTransfer transfer = Take(6)[0];
  const int32_t num_free = cache_.num_free_blocks();
  loads_.Detach(*request_);
  parking_.Leave(request_.get());
  EXPECT_TRUE(CheckIntegrity().ok());
  Finish(transfer, 2);
  EXPECT_TRUE(loads_.TakeAwake().empty());
  EXPECT_EQ(cache_.num_free_blocks(), num_free + 2);
}

TEST_F(LoadCoordinatorTest, AnAbandonedLoadLetsItsRequestGo) {
  ASSERT_EQ(Fetch(), ParkReason::kKvLoad);
  const KvTransfer transfer = Take(6)[0];
  EXPECT_TRUE(loads_.Abandon(transfer.id));
  EXPECT_FALSE(loads_.Abandon(transfer.id));
  EXPECT_EQ(loads_.TakeAwake(), Requests{request_.get()});
  parking_.Leave(request_.get());
  EXPECT_TRUE(CheckIntegrity().ok());
  Finish(transfer, 2);
  EXPECT_EQ(loads_.num_in_flight(), 0u);
  EXPECT_EQ(NumCached(), 0);
  Finish(transfer, 2);
  EXPECT_EQ(counters_.num_stray_transfer_results, 1u);
}

TEST_F(LoadCoordinatorTest, AnAnswerThatIsNotKnownIsWaitedFor) {
  connector_.probes = true;
  EXPECT_EQ(Fetch(), ParkReason::kKvLookup);
  EXPECT_TRUE(CheckIntegrity().ok());
  Finish(Take(1)[0], 0);
  EXPECT_EQ(connector_.num_finished, 1);
  EXPECT_TRUE(loads_.TakeAwake().empty()) << "the caller lets go all that wait for an answer";
}

TEST_F(LoadCoordinatorTest, TheConnectorStaysWhileTransfersAreUnderWay) {
  ASSERT_EQ(Fetch(), ParkReason::kKvLoad);
  EXPECT_EQ(loads_.SetConnector(nullptr).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pagemill::scheduler::internal
