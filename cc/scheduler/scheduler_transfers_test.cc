// Lookups, loads and stores, one case at a time; the worker is the test.
#include <memory>
#include <string>
#include <vector>

#include "cc/kv_cache/connector.h"
#include "cc/scheduler/testing/scheduler_fixture.h"

namespace pagemill::scheduler {
namespace {

using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using kv_cache::TransferId;
using Direction = KvTransfer::Direction;

// Gives the answers that a test has set.
class ScriptedConnector final : public kv_cache::KvConnector {
 public:
  kv_cache::ConnectorMatch Lookup(const Request&, const kv_cache::PrefixQuery& query,
                                  std::vector<KvTransfer>* transfers) override {
    ++num_lookups;
    const auto hashes = query.hashes();
    num_asked_for = static_cast<int32_t>(hashes.size());
    if (probe) {
      transfers->push_back({.direction = Direction::kProbe, .medium = "test"});
      transfers->back().blocks.push_back({hashes[0], kv_cache::GroupId(0), step::kNullBlock});
    }
    return answer;
  }
  void Transfer(Direction direction, std::span<const kv_cache::BlockContent> blocks,
                std::vector<KvTransfer>* transfers) override {
    if (direction == Direction::kStore && !stores) return;
    if (direction == Direction::kLoad && !loads) return;
    transfers->push_back({.direction = direction, .medium = "test"});
    transfers->back().blocks.assign(blocks.begin(), blocks.end());
  }
  void Finish(const KvTransfer&, const KvTransferResult& result) override {
    finished.push_back(result);
  }
  step::KvTransferParams RequestFinished(const Request&,
                                         std::span<const kv_cache::BlockContent> blocks,
                                         std::vector<KvTransfer>* transfers) override {
    ++num_requests_finished;
    if (!sends || blocks.empty()) return {};
    transfers->push_back({.direction = Direction::kSend, .medium = "test"});
    transfers->back().blocks.assign(blocks.begin(), blocks.end());
    return {{"at", "home"}};
  }

  bool Reset(std::vector<KvTransfer>* transfers) override {
    if (!resets) return false;
    transfers->push_back({.direction = Direction::kForget, .medium = "test"});
    answer = {};
    return true;
  }

  bool resets = true;
  kv_cache::ConnectorMatch answer;
  bool probe = false, stores = false, loads = true, sends = false;
  int num_requests_finished = 0;
  int num_lookups = 0;
  int32_t num_asked_for = 0;
  std::vector<KvTransferResult> finished;
};

class SchedulerTransfersTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start(SmallOptions());
    ASSERT_EQ(scheduler_->SetConnector(&connector_), OkStatus());
  }

  std::vector<KvTransfer> Take() {
    std::vector<KvTransfer> transfers;
    scheduler_->TakeTransfers(&transfers);
    return transfers;
  }
  void End(TransferId id, int32_t done, Status status = OkStatus()) {
    const KvTransferResult results[] = {{id, done, std::move(status)}};
    scheduler_->FinishTransfers(results);
    EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
  }
  // Puts what the model would have computed into the pages of a load.
  void FillPages(const KvTransfer& load, const Request& request, int32_t first_token) {
    FakeModel other({.num_blocks = 33, .block_size = 4});
    step::StepPlan plan;
    plan.scheduled.emplace_back();
    ScheduledRequest& entry = plan.scheduled.back();
    entry.start = std::make_shared<const Request>(request);
    const auto end = first_token + 4 * static_cast<int32_t>(load.blocks.size());
    entry.token_ids.assign(request.prompt_token_ids.begin(),
                           request.prompt_token_ids.begin() + end);
    entry.new_block_ids.resize(1);
    for (int32_t i = 0; i < end / 4; ++i) entry.new_block_ids[0].push_back(step::BlockId(i + 1));
    plan.total_num_tokens = end;
    ASSERT_TRUE(other.Run(plan).ok());
    std::vector<std::byte> page(other.page_bytes(kv_cache::GroupId(0)));
    for (size_t i = 0; i < load.blocks.size(); ++i) {
      const auto from = static_cast<int32_t>(first_token / 4 + static_cast<int32_t>(i) + 1);
      ASSERT_TRUE(other.Read(kv_cache::GroupId(0), step::BlockId(from), page).ok());
      ASSERT_TRUE(model_->Write(kv_cache::GroupId(0), load.blocks[i].block, page).ok());
    }
  }
  int64_t Parked(ParkReason reason) const {
    return scheduler_->stats().num_parked[static_cast<size_t>(reason)];
  }

  ScriptedConnector connector_;
};

TEST_F(SchedulerTransfersTest, ARequestWaitsForItsLoadAndComputesTheRest) {
  connector_.answer.num_blocks = 2;
  const Request request = MakeRequest(1, 14, 1);
  Add(request);
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(connector_.num_asked_for, 3) << "of 14 tokens the last one is computed here";
  EXPECT_EQ(Parked(ParkReason::kKvLoad), 1);
  const auto loads = Take();
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].direction, Direction::kLoad);
  EXPECT_EQ(loads[0].blocks.size(), 2u);
  FillPages(loads[0], request, 0);
  EXPECT_EQ(Schedule(), "") << "still on its way";
  End(loads[0].id, 2);
  EXPECT_EQ(Step(), "1:6");
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].num_cached_tokens, 8);
  EXPECT_EQ(events_[0].new_token_ids, FakeModel::Continue(request.prompt_token_ids, 1, 97));
  EXPECT_EQ(scheduler_->stats().kv_loaded_tokens, 8u);
  EXPECT_EQ(connector_.num_lookups, 1);
}

TEST_F(SchedulerTransfersTest, AFailedLoadKeepsTheBlocksBeforeTheFirstBadOne) {
  connector_.answer.num_blocks = 3;
  const Request request = MakeRequest(1, 14, 1);
  Add(request);
  EXPECT_EQ(Schedule(), "");
  const auto loads = Take();
  FillPages(loads[0], request, 0);
  End(loads[0].id, 1, DataLoss("a bad block"));
  EXPECT_EQ(Step(), "1:10");
  EXPECT_EQ(events_[0].num_cached_tokens, 4);
  EXPECT_EQ(events_[0].new_token_ids, FakeModel::Continue(request.prompt_token_ids, 1, 97));
  EXPECT_EQ(scheduler_->stats().num_failed_kv_loads, 1u);
  EXPECT_EQ(connector_.num_lookups, 1) << "the connector is not asked for the bad block again";
}

TEST_F(SchedulerTransfersTest, ARequestIsAskedForAgainWhileTheAnswerIsUnknown) {
  connector_.answer.ask_again = true;
  connector_.probe = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(Parked(ParkReason::kKvLookup), 1);
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(connector_.num_lookups, 1) << "nothing has changed";
  const auto probes = Take();
  ASSERT_EQ(probes.size(), 1u);
  connector_.answer.ask_again = false;
  connector_.probe = false;
  End(probes[0].id, 0);
  EXPECT_EQ(Parked(ParkReason::kKvLookup), 0);
  EXPECT_EQ(Step(), "1:9");
  EXPECT_EQ(connector_.num_lookups, 2);
}

TEST_F(SchedulerTransfersTest, AskAgainWithoutATransferUnderWayMeansNo) {
  connector_.answer.ask_again = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
}

TEST_F(SchedulerTransfersTest, AConnectorThatLoadsNothingOfWhatItFoundIsSurvived) {
  connector_.answer.num_blocks = 2;
  connector_.loads = false;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
}

TEST_F(SchedulerTransfersTest, AnAbortWhileLoadingFreesTheBlocksWhenTheLoadHasEnded) {
  connector_.answer.num_blocks = 2;
  Add(MakeRequest(1, 14, 1));
  EXPECT_EQ(Schedule(), "");
  const auto loads = Take();
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
  EXPECT_FALSE(scheduler_->HasWork());
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 2);
  EXPECT_FALSE(scheduler_->ResetPrefixCache());
  End(loads[0].id, 2);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(SchedulerTransfersTest, AnAbandonedLoadLetsItsRequestComputeAndKeepsThePages) {
  connector_.answer.num_blocks = 2;
  Add(MakeRequest(1, 14, 2));
  EXPECT_EQ(Schedule(), "");
  const auto loads = Take();
  scheduler_->AbandonTransfer(loads[0].id);
  EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
  EXPECT_EQ(Step(), "1:14");
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 2 + 4);
  EXPECT_EQ(Step(), "1:1");
  End(loads[0].id, 2);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(SchedulerTransfersTest, OneAbandonedTransferDoesNotDisableTheConnector) {
  connector_.answer.num_blocks = 1;
  connector_.stores = true;
  Add(MakeRequest(1, 6, 1));
  EXPECT_EQ(Schedule(), "");
  const auto late = Take();
  scheduler_->AbandonTransfer(late[0].id);
  EXPECT_EQ(Step(), "1:6");
  const auto stores = Take();
  ASSERT_EQ(stores.size(), 1u) << "what is computed is stored";
  const Request request = MakeRequest(2, 7, 1);
  Add(request);
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(Parked(ParkReason::kKvLoad), 1) << "others load";
  const auto loads = Take();
  FillPages(loads[0], request, 0);
  End(loads[0].id, 1);
  EXPECT_EQ(Step(), "2:3");
  EXPECT_EQ(events_[0].num_cached_tokens, 4);
}

TEST_F(SchedulerTransfersTest, AConnectorIsNotUsedWhileItsWorkerHangs) {
  connector_.answer.num_blocks = 1;
  std::vector<KvTransfer> late;
  for (uint64_t id = 1; id <= Scheduler::kMostAbandonedTransfers + 1; ++id) {
    Add(MakeRequest(id, 6, 1));
    EXPECT_EQ(Schedule(), "") << "the connector is asked";
    late.push_back(Take().at(0));
    scheduler_->AbandonTransfer(late.back().id);
    EXPECT_EQ(Step(), std::to_string(id) + ":6");
  }
  const int num_lookups = connector_.num_lookups;
  Add(MakeRequest(8, 6, 1));
  EXPECT_EQ(Step(), "8:6") << "its request does not wait for one more timeout";
  EXPECT_EQ(connector_.num_lookups, num_lookups);
  End(late[0].id, 1);
  Add(MakeRequest(9, 6, 1));
  EXPECT_EQ(Schedule(), "") << "it is asked again";
}

TEST_F(SchedulerTransfersTest, ARequestDoesNotWaitForAnAnswerThatAnAbandonedProbeWouldBring) {
  connector_.answer.ask_again = true;
  connector_.probe = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Schedule(), "");
  const auto probes = Take();
  connector_.probe = false;  // it is under way: no second one
  scheduler_->AbandonTransfer(probes[0].id);
  EXPECT_EQ(Step(), "1:9");
}

TEST_F(SchedulerTransfersTest, AResetReachesTheConnector) {
  connector_.answer.num_blocks = 1;
  EXPECT_TRUE(scheduler_->ResetPrefixCache());
  const auto forgets = Take();
  ASSERT_EQ(forgets.size(), 1u);
  EXPECT_EQ(forgets[0].direction, Direction::kForget);
  Add(MakeRequest(1, 6, 1));
  EXPECT_EQ(Step(), "1:6") << "nothing is loaded";
  End(forgets[0].id, 0);
  EXPECT_EQ(connector_.finished.back().status, OkStatus());
}

TEST_F(SchedulerTransfersTest, AResetIsRefusedIfTheConnectorCannotForget) {
  connector_.resets = false;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_FALSE(scheduler_->ResetPrefixCache());
  Request again = MakeRequest(1, 9, 1);
  again.id = RequestId(2);
  Add(again);
  EXPECT_EQ(Step(), "2:1") << "nothing was forgotten";
}

TEST_F(SchedulerTransfersTest, ALoadStartsAfterTheStepsThatMayWriteToItsPages) {
  // A request is aborted while its step is in flight; its pages are free at once and go to a load.
  Add(MakeRequest(1, 12, 4));
  EXPECT_EQ(Schedule(), "1:12");
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  const step::StepPlan running = plan_;
  connector_.answer.num_blocks = 2;
  const Request request = MakeRequest(2, 14, 1);
  Add(request);
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(Parked(ParkReason::kKvLoad), 1);
  EXPECT_TRUE(Take().empty()) << "the step may still write to the pages";
  plan_ = running;
  Finish();
  const auto loads = Take();
  ASSERT_EQ(loads.size(), 1u);
  FillPages(loads[0], request, 0);
  End(loads[0].id, 2);
  EXPECT_EQ(Step(), "2:6");
  EXPECT_EQ(events_[0].new_token_ids, FakeModel::Continue(request.prompt_token_ids, 1, 97));
}

TEST_F(SchedulerTransfersTest, FilledBlocksAreOfferedAndStayUntilTheyAreStored) {
  connector_.stores = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_FALSE(scheduler_->HasWork());
  const auto stores = Take();
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].direction, Direction::kStore);
  EXPECT_EQ(stores[0].blocks.size(), 2u);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 2) << "the request is gone, the pages are not";
  End(stores[0].id, 2);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(SchedulerTransfersTest, AStoreDoesNotDelayAStep) {
  connector_.stores = true;
  Add(MakeRequest(1, 9, 4));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_EQ(Take().size(), 1u);
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(Step(), "1:1");
  EXPECT_EQ(Step(), "1:1");
  EXPECT_TRUE(events_[0].finish_reason);
}

TEST_F(SchedulerTransfersTest, BlocksOfAFinishedRequestStayUntilTheyAreSent) {
  connector_.sends = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  ASSERT_TRUE(events_[0].finish_reason);
  EXPECT_EQ(events_[0].kv_transfer_params, (step::KvTransferParams{{"at", "home"}}));
  EXPECT_FALSE(scheduler_->HasWork());
  const auto sends = Take();
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].blocks.size(), 2u);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 2);
  scheduler_->AbandonTransfer(sends[0].id);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 2) << "the worker may still read them";
  End(sends[0].id, 0, Unavailable("the peer is gone"));
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(SchedulerTransfersTest, OnlyRequestsThatEndByThemselvesAreHandedOver) {
  connector_.sends = true;
  Add(MakeRequest(1, 9, 4));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_EQ(connector_.num_requests_finished, 0);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
}

TEST_F(SchedulerTransfersTest, HeldBlocksTakeAtMostHalfOfThePool) {
  connector_.sends = true;
  std::vector<KvTransfer> sends;
  for (uint64_t id = 1; id <= 5; ++id) {
    Add(MakeRequest(id, 16, 1));
    EXPECT_EQ(Step(), std::to_string(id) + ":16");
    EXPECT_EQ(events_[0].kv_transfer_params.empty(), id == 5) << id;
    for (KvTransfer& send : Take()) sends.push_back(std::move(send));
  }
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 16) << "of 32";
  EXPECT_EQ(connector_.num_requests_finished, 5);
  End(sends[0].id, 4);
  Add(MakeRequest(6, 16, 1));
  EXPECT_EQ(Step(), "6:16");
  EXPECT_FALSE(events_[0].kv_transfer_params.empty());
}

TEST_F(SchedulerTransfersTest, APeerThatHangsHindersNoOther) {
  connector_.answer = {.num_blocks = 1, .handover = {.peer = "gone", .number = 7}};
  for (uint64_t id = 1; id <= Scheduler::kMostAbandonedTransfers + 1; ++id) {
    Add(MakeRequest(id, 6, 1));
    EXPECT_EQ(Schedule(), "");
    const auto loads = Take();
    EXPECT_EQ(loads.at(0).handover.peer, "gone");
    EXPECT_EQ(loads.at(0).handover.number, 7u);
    scheduler_->AbandonTransfer(loads[0].id);
    EXPECT_EQ(Step(), std::to_string(id) + ":6");
  }
  Add(MakeRequest(8, 6, 1));
  EXPECT_EQ(Step(), "8:6") << "it does not wait for the peer that hangs";
  connector_.answer.handover.peer = "other";
  Add(MakeRequest(9, 6, 1));
  EXPECT_EQ(Schedule(), "");
  EXPECT_EQ(Take().at(0).handover.peer, "other");
}

TEST_F(SchedulerTransfersTest, AnAnswerThatComesTwiceIsCountedAndDropped) {
  connector_.stores = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  const auto stores = Take();
  End(stores[0].id, 2);
  End(stores[0].id, 2);
  End(TransferId(99), 0);
  EXPECT_EQ(connector_.finished.size(), 1u);
  EXPECT_EQ(scheduler_->stats().num_stray_transfer_results, 2u);
}

TEST_F(SchedulerTransfersTest, AnAnswerThatMakesNoSenseIsAFailure) {
  connector_.answer.num_blocks = 2;
  Add(MakeRequest(1, 14, 1));
  EXPECT_EQ(Schedule(), "");
  const auto loads = Take();
  End(loads[0].id, 0);  // "a success" that copied nothing
  EXPECT_FALSE(connector_.finished[0].status.ok());
  EXPECT_EQ(Step(), "1:14");
}

TEST_F(SchedulerTransfersTest, ALoadedBlockIsOfferedToAFasterMedium) {
  connector_.answer.num_blocks = 2;
  connector_.stores = true;
  const Request request = MakeRequest(1, 14, 1);
  Add(request);
  EXPECT_EQ(Schedule(), "");
  const auto loads = Take();
  FillPages(loads[0], request, 0);
  End(loads[0].id, 2);
  const auto stores = Take();
  ASSERT_EQ(stores.size(), 1u);
  EXPECT_EQ(stores[0].blocks.size(), 2u);
  EXPECT_EQ(Step(), "1:6");
  End(stores[0].id, 2);
}

TEST_F(SchedulerTransfersTest, RequestsThatDoNotReadTheCacheAreNotLookedUp) {
  Request request = MakeRequest(1, 14, 1);
  request.skip_reading_prefix_cache = true;
  Add(request);
  EXPECT_EQ(Step(), "1:14");
  EXPECT_EQ(connector_.num_lookups, 0);
}

TEST_F(SchedulerTransfersTest, TheConnectorCannotChangeWhileTransfersAreUnderWay) {
  connector_.stores = true;
  Add(MakeRequest(1, 9, 1));
  EXPECT_EQ(Step(), "1:9");
  EXPECT_EQ(scheduler_->SetConnector(nullptr).code(), StatusCode::kFailedPrecondition);
}

TEST_F(SchedulerTransfersTest, AConnectorServesGroupsWithTheCachesBlocksOnly) {
  for (const step::KvGroupOptions& group :
       {step::KvGroupOptions{.block_size = 8}, step::KvGroupOptions{.pages_per_block = 2}}) {
    SchedulerOptions options = SmallOptions();
    options.kv_cache.groups.push_back(group);
    Start(options);
    const Status status = scheduler_->SetConnector(&connector_);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find("one page per block of 4 tokens"), std::string::npos);
    EXPECT_EQ(scheduler_->SetConnector(nullptr), OkStatus());
  }
}

}  // namespace
}  // namespace pagemill::scheduler
