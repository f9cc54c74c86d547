// KV that leaves the pool and comes back, through a whole engine.
#include "cc/engine/kv_tiers.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "cc/engine/testing/fake_runner_control.h"
#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/kv_transfer/host_medium.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;

constexpr double kLong = 60;  // seconds: longer than any step takes on a loaded machine
constexpr int64_t kTimeoutNs = 10'000'000'000;  // that of the default options

// Room for two requests of 36 tokens and little more.
RunnerLimits SmallPool() {
  RunnerLimits limits = FakeRunner::DefaultLimits();
  limits.num_blocks = 20;
  return limits;
}

Request MakeRequest(uint64_t id, int32_t seed) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < 33; ++i) request.prompt_token_ids.push_back((i * seed + 7) % 97);
  request.sampling.max_tokens = 3;
  return request;
}

// A medium whose loads fail behind some blocks, or do not end while it is held.
class UnreliableMedium final : public kv_transfer::TransferMedium {
 public:
  explicit UnreliableMedium(step::PageStore* pages)
      : host_(std::make_shared<kv_transfer::HostArena>(64, pages->page_bytes(kv_cache::GroupId(0))),
              pages) {}

  KvTransferResult Run(const KvTransfer& transfer) override {
    if (transfer.direction != KvTransfer::Direction::kLoad) return host_.Run(transfer);
    std::unique_lock lock(mutex_);
    ++num_loads_;
    loading_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    KvTransferResult result = host_.Run(Good(transfer));
    if (num_good_ >= 0) result.status = DataLoss("injected");
    loading_ = false;
    return result;
  }
  bool is_idle() {
    std::lock_guard lock(mutex_);
    return !loading_;
  }
  void Hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void WaitForLoad() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_loads_ > 0; });
  }
  void FailBehind(int32_t num_good) {
    std::lock_guard lock(mutex_);
    num_good_ = num_good;
  }

 private:
  KvTransfer Good(KvTransfer transfer) const {
    if (num_good_ >= 0) transfer.blocks.resize(static_cast<size_t>(num_good_));
    return transfer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool loading_ = false;
  int32_t num_good_ = -1;  // -1: all
  int32_t num_loads_ = 0;
  kv_transfer::HostMedium host_;
};

// Copies at once, but its results come late: a look that finds none is followed by the planning of
// a step, and then by one that finds them.
class LateWorker final : public kv_cache::TransferWorker {
 public:
  explicit LateWorker(step::PageStore* pages)
      : medium_(
            std::make_shared<kv_transfer::HostArena>(64, pages->page_bytes(kv_cache::GroupId(0))),
            pages) {}

  void Start(KvTransfer transfer) override {
    results_.push_back(medium_.Run(transfer));
    results_.back().id = transfer.id;
    num_polls_ = 0;
  }
  void Poll(std::vector<KvTransferResult>* results) override {
    if (++num_polls_ < 2) return;
    results->insert(results->end(), results_.begin(), results_.end());
    results_.clear();
  }
  void Wait(int64_t) override {}

 private:
  kv_transfer::HostMedium medium_;
  std::vector<KvTransferResult> results_;
  int num_polls_ = 0;  // since a transfer was started
};

class KvTiersTest : public testing::Test {
 protected:
  void StartEngine(LogSink log = {}) {
    options_.check_integrity = true;
    auto engine = Engine::Create(options_, &runner_, &clock_, std::move(log));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(*engine);
  }

  // The engine with a host tier of 64 blocks, whose loads this test rules.
  void StartUnreliable(LogSink log = {}) {
    auto medium = std::make_unique<UnreliableMedium>(runner_.pages());
    medium_ = medium.get();
    worker_.Add(kv_cache::kHostMedium, std::move(medium));
    auto connector = kv_cache::TieredConnector::Create({.host_blocks = 64});
    ASSERT_TRUE(connector.ok());
    connector_ = std::move(*connector);
    options_.kv_tiers.connector = connector_.get();
    options_.kv_tiers.worker = &worker_;
    StartEngine(std::move(log));
  }

  // The engine is new, and so is the content of its pages.
  void Restart() {
    engine_.reset();
    runner_.Restart();
    StartEngine();
  }

  // The last output of a request; its tokens are checked.
  RequestOutput Finish(const Request& request) {
    std::vector<int32_t> tokens;
    while (true) {
      const std::vector<RequestOutput> outputs = engine_->Wait(kLong);
      if (outputs.empty()) {
        ADD_FAILURE() << "no output";
        return {};
      }
      for (const RequestOutput& output : outputs) {
        if (output.request_id != request.id) continue;
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        cached_ = std::max(cached_, output.num_cached_tokens);
        if (!output.finished()) continue;
        EXPECT_EQ(output.finish_reason, FinishReason::kLength);
        EXPECT_EQ(tokens, FakeModel::Continue(request.prompt_token_ids, 3, 97));
        return output;
      }
    }
  }

  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return condition();
  }

  // Returns how many of its tokens were cached.
  int32_t Answer(const Request& request) {
    cached_ = 0;
    EXPECT_TRUE(engine_->Submit(request).ok());
    Finish(request);
    return cached_;
  }

  void WaitForStores(uint64_t num_blocks) {
    EXPECT_TRUE(Eventually([&] { return engine_->stats().kv_blocks_stored >= num_blocks; }));
  }

  // Request 1 is answered, stored, and pushed out of the pool by request 2.
  void StoreAndPushOut() {
    EXPECT_EQ(Answer(MakeRequest(1, 5)), 0);
    WaitForStores(8);
    EXPECT_EQ(Answer(MakeRequest(2, 11)), 0);
    EXPECT_EQ(Answer(MakeRequest(3, 13)), 0);
  }

  void TearDown() override {
    if (medium_ != nullptr) medium_->Hold(false);
    if (engine_) engine_->Shutdown();
    EXPECT_EQ(runner_.violation(), "");
    engine_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  const std::string folder_ = testing::TempDir() + "kv_tiers_test_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
  EngineOptions options_;
  FakeRunnerControl control_;
  FakeRunner runner_{SmallPool(), &control_};
  FakeClock clock_;
  std::unique_ptr<kv_cache::TieredConnector> connector_;
  kv_transfer::ThreadedWorker worker_;
  UnreliableMedium* medium_ = nullptr;
  std::unique_ptr<Engine> engine_;
  int32_t cached_ = 0;
};

TEST_F(KvTiersTest, ABlockThatGaveWayComesBackFromHostMemory) {
  for (const char* policy : {"lru", "arc"}) {
    options_.kv_tiers.host_bytes = 1 << 20;
    options_.kv_tiers.policy = policy;
    StartEngine();
    StoreAndPushOut();
    EXPECT_EQ(Answer(MakeRequest(4, 5)), 32) << "all but the last token";
    const EngineStats stats = engine_->stats();
    EXPECT_GT(stats.kv_loaded_tokens, 0u);
    EXPECT_LE(stats.kv_loaded_tokens, stats.kv_query_tokens);
    EXPECT_GT(stats.kv_blocks_loaded, 0u);
    EXPECT_EQ(stats.num_failed_kv_loads + stats.num_failed_kv_transfers, 0u);
    engine_.reset();
    runner_.Restart();
  }
}

TEST_F(KvTiersTest, WithoutATierItIsComputedAgain) {
  StartEngine();
  EXPECT_EQ(Answer(MakeRequest(1, 5)), 0);
  EXPECT_EQ(Answer(MakeRequest(2, 11)), 0);
  EXPECT_EQ(Answer(MakeRequest(3, 13)), 0);
  EXPECT_LT(Answer(MakeRequest(4, 5)), 32);
}

TEST_F(KvTiersTest, ABlockThatGaveWayInHostMemoryComesBackFromDisk) {
  const auto page_bytes = static_cast<int64_t>(runner_.pages()->page_bytes(kv_cache::GroupId(0)));
  options_.kv_tiers.host_bytes = 16 * page_bytes;
  options_.kv_tiers.disk_path = folder_;
  options_.kv_tiers.disk_bytes = 1 << 20;
  StartEngine();
  StoreAndPushOut();
  EXPECT_EQ(Answer(MakeRequest(4, 5)), 32);
  EXPECT_TRUE(Eventually([&] { return engine_->stats().kv_blocks_demoted > 0; }));
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "the file has no name while it is used";
}

TEST_F(KvTiersTest, AFolderOfBlocksOutlivesTheEngine) {
  options_.kv_tiers.connector_folder = folder_;
  options_.kv_tiers.fingerprint = [] { return std::string("a model"); };
  StartEngine();
  EXPECT_EQ(Answer(MakeRequest(1, 5)), 0);
  WaitForStores(8);
  Restart();
  EXPECT_EQ(Answer(MakeRequest(2, 5)), 32);
  options_.kv_tiers.fingerprint = [] { return std::string("another model"); };
  Restart();
  EXPECT_EQ(Answer(MakeRequest(3, 5)), 0) << "content of another model is not loaded";
}

// It reads all weights.
TEST_F(KvTiersTest, TheFingerprintIsComputedOnlyForWhatOutlivesTheEngine) {
  int num_computed = 0;
  options_.kv_tiers.fingerprint = [&num_computed] {
    ++num_computed;
    return std::string("a model");
  };
  options_.kv_tiers.host_bytes = 1 << 10;
  options_.kv_tiers.disk_path = folder_;
  options_.kv_tiers.disk_bytes = 1 << 20;
  StartEngine();
  StoreAndPushOut();
  EXPECT_EQ(num_computed, 0);
  EXPECT_TRUE(engine_->SaveSession(folder_, MakeRequest(4, 13)).ok());
  EXPECT_EQ(num_computed, 1);
}

TEST_F(KvTiersTest, ALoadThatFailsIsComputedFromItsFirstBadBlock) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->FailBehind(3);
  // The pool may still have the first blocks; of the others three come.
  const int32_t cached = Answer(MakeRequest(4, 5));
  EXPECT_GE(cached, 12);
  EXPECT_LT(cached, 32);
  EXPECT_EQ(engine_->stats().kv_loaded_tokens, 12u);
  EXPECT_EQ(engine_->stats().num_failed_kv_loads, 1u);
  EXPECT_EQ(engine_->stats().num_failed_kv_transfers, 1u);
}

TEST_F(KvTiersTest, OthersRunWhileALoadIsUnderWay) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->Hold(true);
  const Request waiting = MakeRequest(4, 5);
  ASSERT_TRUE(engine_->Submit(waiting).ok());
  medium_->WaitForLoad();
  Request other;
  other.id = RequestId(5);
  other.prompt_token_ids = {1, 2};
  other.sampling.max_tokens = 3;
  ASSERT_TRUE(engine_->Submit(other).ok());
  Finish(other);
  EXPECT_EQ(engine_->stats().num_waiting, 1);
  medium_->Hold(false);
  cached_ = 0;
  Finish(waiting);
  EXPECT_EQ(cached_, 32);
}

TEST_F(KvTiersTest, ALoadThatEndsWhileAStepIsPlannedWakesItsRequest) {
  LateWorker worker(runner_.pages());
  auto connector = kv_cache::TieredConnector::Create({.host_blocks = 64});
  ASSERT_TRUE(connector.ok());
  options_.kv_tiers.connector = connector->get();
  options_.kv_tiers.worker = &worker;
  StartEngine();
  for (uint64_t round = 0; round < 4; ++round) {
    for (int32_t seed : {5, 11, 13}) {
      const Request request = MakeRequest(10 * round + static_cast<uint64_t>(seed), seed);
      const int32_t cached = Answer(request);
      if (round > 0) {
        EXPECT_GT(cached, 0) << "round " << round << ", seed " << seed;
      }
    }
  }
  engine_.reset();
}

TEST_F(KvTiersTest, ALoadThatTakesTooLongIsAbandonedAndComputed) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->Hold(true);
  const Request request = MakeRequest(4, 5);
  ASSERT_TRUE(engine_->Submit(request).ok());
  medium_->WaitForLoad();
  clock_.AdvanceNanos(kTimeoutNs + 1);
  Finish(request);
  EXPECT_EQ(engine_->stats().num_failed_kv_loads, 1u);
}

TEST_F(KvTiersTest, ShutdownWaitsForTheTransfersOfAHostsWorker) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->Hold(true);
  ASSERT_TRUE(engine_->Submit(MakeRequest(4, 5)).ok());
  medium_->WaitForLoad();
  std::thread host([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    medium_->Hold(false);
  });
  engine_->Shutdown();
  EXPECT_TRUE(medium_->is_idle()) << "it would write to pages that are gone";
  host.join();
  EXPECT_GT(connector_->stats().kv_blocks_loaded, 0u) << "the connector heard how it ended";
}

TEST_F(KvTiersTest, ShutdownDoesNotWaitLongerThanATransferMayTake) {
  std::string logged;
  StartUnreliable([&logged](LogSeverity, std::string_view line) { logged += line; });
  StoreAndPushOut();
  medium_->Hold(true);
  ASSERT_TRUE(engine_->Submit(MakeRequest(4, 5)).ok());
  medium_->WaitForLoad();
  engine_->Pause(scheduler::PauseMode::kKeep);  // so that an abandoned load is not computed
  ASSERT_TRUE(engine_->WaitPaused(kLong));
  std::atomic<bool> is_down = false;
  std::thread time([&] {
    for (; !is_down; std::this_thread::yield()) clock_.AdvanceNanos(kTimeoutNs / 100);
  });
  engine_->Shutdown();
  is_down = true;
  time.join();
  const std::vector<RequestOutput> outputs = engine_->Poll();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kAbort);
  EXPECT_NE(logged.find("1 KV transfers of the host's worker did not end within 10000 ms"),
            std::string::npos)
      << logged;
}

TEST_F(KvTiersTest, AResetReachesTheTiers) {
  const auto page_bytes = static_cast<int64_t>(runner_.pages()->page_bytes(kv_cache::GroupId(0)));
  options_.kv_tiers.host_bytes = 16 * page_bytes;
  options_.kv_tiers.disk_path = folder_;
  options_.kv_tiers.disk_bytes = 1 << 20;
  StartEngine();
  StoreAndPushOut();
  EXPECT_TRUE(Eventually([&] { return engine_->ResetPrefixCache(); }));
  EXPECT_EQ(Answer(MakeRequest(4, 5)), 0);
  EXPECT_EQ(Answer(MakeRequest(5, 11)), 0);
  EXPECT_EQ(engine_->stats().kv_blocks_loaded, 0u);
}

TEST_F(KvTiersTest, AResetReachesTheFolderAndTheProcessesAfterIt) {
  options_.kv_tiers.connector_folder = folder_;
  options_.kv_tiers.fingerprint = [] { return std::string("a model"); };
  StartEngine();
  EXPECT_EQ(Answer(MakeRequest(1, 5)), 0);
  WaitForStores(8);
  EXPECT_TRUE(Eventually([&] { return engine_->ResetPrefixCache(); }));
  EXPECT_EQ(Answer(MakeRequest(2, 5)), 0);
  EXPECT_TRUE(Eventually([&] { return engine_->ResetPrefixCache(); }));
  Restart();
  EXPECT_EQ(Answer(MakeRequest(3, 5)), 0);
}

TEST_F(KvTiersTest, ATaskAtRestWaitsForCopies) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->Hold(true);
  ASSERT_TRUE(engine_->Submit(MakeRequest(4, 5)).ok());
  medium_->WaitForLoad();
  bool idle = false;
  const auto look = [&] {
    idle = medium_->is_idle();
    return OkStatus();
  };
  EXPECT_EQ(engine_->RunAtRest(look, 0.02).code(), StatusCode::kDeadlineExceeded);
  std::thread host([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    medium_->Hold(false);
  });
  EXPECT_TRUE(engine_->RunAtRest(look, kLong).ok());
  EXPECT_TRUE(idle);
  host.join();
  Finish(MakeRequest(4, 5));
}

TEST_F(KvTiersTest, KvOfTiersOutlivesSleepAndNotAnUpdate) {
  StartUnreliable();
  EXPECT_EQ(Answer(MakeRequest(1, 5)), 0);
  WaitForStores(8);
  ASSERT_TRUE(engine_->Sleep(KvMemory::kFree, kLong).ok());
  ASSERT_TRUE(engine_->Wake(kLong).ok());
  EXPECT_EQ(Answer(MakeRequest(2, 5)), 32);
  EXPECT_GT(engine_->stats().kv_blocks_loaded, 0u);
  ASSERT_TRUE(engine_->UpdateWeights({}, kLong).ok());
  EXPECT_EQ(Answer(MakeRequest(3, 5)), 0);
}

TEST_F(KvTiersTest, AFolderThatIsNamedByWeightsRefusesOthers) {
  options_.kv_tiers.connector_folder = folder_;
  options_.kv_tiers.fingerprint = [] { return std::string("a model"); };
  StartEngine();
  const Status status = engine_->UpdateWeights({}, kLong);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--kv-connector-path"), std::string::npos) << status.message();
  EXPECT_TRUE(engine_->Sleep(KvMemory::kFree, kLong).ok());
}

TEST_F(KvTiersTest, AnAbortedRequestGivesItsBlocksBackWhenItsLoadEnds) {
  StartUnreliable();
  StoreAndPushOut();
  medium_->Hold(true);
  ASSERT_TRUE(engine_->Submit(MakeRequest(4, 5)).ok());
  medium_->WaitForLoad();
  engine_->Abort(RequestId(4));
  EXPECT_TRUE(engine_->WaitIdle(kLong));
  medium_->Hold(false);
  engine_->Poll();
  EXPECT_EQ(Answer(MakeRequest(5, 17)), 0);
  EXPECT_TRUE(Eventually([&] { return engine_->stats().kv_blocks_used == 0; }));
}

class KvTierRefusals : public KvTiersTest {
 protected:
  std::string Refusal(StatusCode code, Runner* runner = nullptr) {
    auto engine = Engine::Create(options_, runner ? runner : &runner_, &clock_, {});
    EXPECT_EQ(engine.status().code(), code) << engine.status().ToString();
    return engine.status().message();
  }
  void ExpectNames(const std::string& message, const std::string& what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
};

class RunnerWithoutPages final : public Runner {
 public:
  RunnerWithoutPages() : Runner(FakeRunner::DefaultLimits()) {}
  Status Execute(const step::StepPlan&) override { return OkStatus(); }
  Status Sample() override { return OkStatus(); }
  StatusOr<step::StepResult> Collect() override { return step::StepResult(); }
};

TEST_F(KvTierRefusals, ARunnerWithoutPagesTakesNoTiers) {
  options_.kv_tiers.host_bytes = 1 << 20;
  RunnerWithoutPages runner;
  ExpectNames(Refusal(StatusCode::kUnimplemented, &runner), "--kv-offloading-bytes");
}

TEST_F(KvTierRefusals, TiersNeedPrefixCaching) {
  options_.kv_tiers.host_bytes = 1 << 20;
  options_.enable_prefix_caching = false;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--enable-prefix-caching");
}

TEST_F(KvTierRefusals, ATierHoldsTwoBlocksAtLeast) {
  options_.kv_tiers.host_bytes = 50;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--kv-offloading-bytes: 50 bytes");
  options_.kv_tiers.host_bytes = 0;
  options_.kv_tiers.disk_path = folder_;
  options_.kv_tiers.disk_bytes = 100;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--kv-offloading-disk-bytes: 100 bytes");
}

TEST_F(KvTierRefusals, ADiskTierHasAPathAndASize) {
  options_.kv_tiers.disk_path = folder_;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--kv-offloading-disk-bytes");
}

TEST_F(KvTierRefusals, TiersAndAConnectorExcludeEachOther) {
  options_.kv_tiers.host_bytes = 1 << 20;
  options_.kv_tiers.connector_folder = folder_;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--kv-connector-path");
}

TEST_F(KvTierRefusals, AFolderNeedsAFingerprint) {
  options_.kv_tiers.connector_folder = folder_;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "fingerprint");
}

TEST_F(KvTierRefusals, PoliciesAreListed) {
  options_.kv_tiers.host_bytes = 1 << 20;
  options_.kv_tiers.policy = "mru";
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "arc");
}

TEST_F(KvTierRefusals, ATransferTimesOutAfterAMillisecondAtLeastAndDaysAtMost) {
  options_.kv_tiers.transfer_timeout_ms = 0;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "--kv-transfer-timeout-ms");
  options_.kv_tiers.transfer_timeout_ms = INT64_MAX;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "from 1 to 2147483647");
}

TEST_F(KvTierRefusals, AConnectorOfTheHostsNeedsAWorker) {
  options_.kv_tiers.worker = &worker_;
  ExpectNames(Refusal(StatusCode::kInvalidArgument), "worker");
}

}  // namespace
}  // namespace pagemill::engine
