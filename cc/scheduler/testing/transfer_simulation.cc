#include "cc/scheduler/testing/transfer_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_cache/connectors/file.h"
#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/scheduler/scheduler.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using step::FakeModel;
using step::Request;
using step::RequestId;
using Direction = KvTransfer::Direction;

constexpr int32_t kVocabSize = 61;
constexpr int32_t kBlockSize = 4;
constexpr int32_t kMaxModelLen = 60;

std::unique_ptr<kv_cache::KvConnector> MakeConnector(const TransferSetup& setup) {
  if (setup.files) {
    return std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{
        .max_blocks_in_flight = 8, .max_known_blocks = 64, .max_probe_blocks = 6});
  }
  return std::move(*kv_cache::TieredConnector::Create({.host_blocks = setup.host_blocks,
                                                       .disk_blocks = setup.disk_blocks,
                                                       .policy = setup.policy,
                                                       .max_blocks_in_flight = 8}));
}

// Bytes by medium, and slot or hash: what real workers keep in memory and files.
class PretendedWorker {
 public:
  PretendedWorker(FakeModel* model, std::mt19937* random) : model_(model), random_(random) {}

  // Copies now; the answer is given later.
  KvTransferResult Run(const KvTransfer& transfer, bool fails) {
    const size_t size = transfer.blocks.size();
    const size_t most = fails ? (*random_)() % size : size;
    KvTransferResult result{transfer.id, 0, fails ? Internal("injected") : OkStatus()};
    for (size_t i = 0; i < most; ++i) {
      if (!Copy(transfer, i)) {
        if (transfer.direction != Direction::kProbe) result.status = NotFound("it is gone");
        break;
      }
      ++result.num_blocks_done;
    }
    return result;
  }

  // Files may vanish at any time.
  void LoseSomeFile() {
    if (!files_.empty()) files_.erase(files_.begin());
  }

 private:
  using Page = std::vector<std::byte>;

  bool Copy(const KvTransfer& transfer, size_t i) {
    const kv_cache::BlockContent& block = transfer.blocks[i];
    if (transfer.direction == Direction::kProbe) return files_.contains(block.hash.words);
    Page* place = transfer.medium_slots.empty()
                      ? nullptr
                      : &slots_[{transfer.medium, transfer.medium_slots[i]}];
    if (transfer.direction == Direction::kDemote) {
      *place = slots_.at({"host", transfer.source_slots[i]});
      return true;
    }
    if (transfer.direction == Direction::kStore) {
      if (place == nullptr) place = &files_[block.hash.words];
      place->resize(model_->page_bytes(block.group));
      model_->Read(block.group, block.block, *place);
      return true;
    }
    if (place == nullptr) {
      const auto file = files_.find(block.hash.words);
      if (file == files_.end()) return false;
      place = &file->second;
    }
    model_->Write(block.group, block.block, *place);
    return true;
  }

  FakeModel* const model_;
  std::mt19937* const random_;
  std::map<std::pair<std::string, int64_t>, Page> slots_;
  std::map<std::array<uint64_t, 4>, Page> files_;
};

class Simulation {
 public:
  explicit Simulation(const TransferSetup& setup)
      : setup_(setup),
        random_(setup.seed),
        model_(ModelOptions(setup)),
        connector_(MakeConnector(setup)),
        worker_(&model_, &random_) {
    SchedulerOptions options;
    options.max_num_tokens = 24;
    options.max_num_seqs = 6;
    options.max_num_logits_rows = 12;
    options.max_model_len = kMaxModelLen;
    options.vocab_size = kVocabSize;
    options.max_waiting_requests = 10;
    options.kv_cache.num_blocks = setup.num_blocks;
    options.kv_cache.block_size = kBlockSize;
    scheduler_ = std::move(*Scheduler::Create(options));
    PM_CHECK(scheduler_->SetConnector(connector_.get()).ok());
  }

  void Run(TransferReport* report) {
    for (int i = 0; i < setup_.num_operations && !testing::Test::HasFailure(); ++i) {
      RandomOperation();
      const Status status = scheduler_->CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status.ToString() << " after operation " << i;
    }
    Drain();
    report->scheduler = scheduler_->stats();
    report->connector = connector_->stats();
    report->num_finished = num_finished_;
  }

 private:
  struct Live {
    Request request;
    std::vector<int32_t> tokens;
  };
  struct Flight {
    step::StepPlan plan;
    std::optional<step::StepResult> result;
  };
  struct Copying {
    KvTransfer transfer;
    std::optional<KvTransferResult> result;  // once the bytes are copied
  };

  static FakeModel::Options ModelOptions(const TransferSetup& setup) {
    FakeModel::Options options;
    options.num_blocks = setup.num_blocks;
    options.block_size = kBlockSize;
    options.max_num_seqs = 6;
    options.vocab_size = kVocabSize;
    options.max_num_tokens = 24;
    options.max_num_logits_rows = 12;
    return options;
  }

  int32_t Pick(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  void RandomOperation() {
    const int32_t dice = Pick(0, 999);
    if (dice < 180) {
      AddRequest();
    } else if (dice < 220) {
      AbortRandom();
    } else if (dice < 230) {
      (void)scheduler_->ResetPrefixCache();
    } else if (dice < 235) {
      worker_.LoseSomeFile();
    } else if (dice < 600 && flights_.size() < static_cast<size_t>(setup_.max_steps_in_flight)) {
      StartStep();
    } else if (dice < 800) {
      FinishStep();
    } else {
      MoveTransfers();
    }
    if (Pick(0, 99) < setup_.percent_abandoned && !copying_.empty()) {
      scheduler_->AbandonTransfer(copying_[random_() % copying_.size()].transfer.id);
    }
  }

  void AddRequest() {
    Request request;
    request.id = RequestId(next_id_++);
    const int32_t family = Pick(0, 5);  // few distinct beginnings, more than the pool holds
    const int32_t size = Pick(1, Pick(1, 3) == 1 ? kMaxModelLen : 24);
    const int32_t common = Pick(0, size);
    for (int32_t i = 0; i < size; ++i) {
      request.prompt_token_ids.push_back(i < common ? (family * 17 + i * 5) % kVocabSize
                                                    : Pick(0, 3));
    }
    if (Pick(0, 9) == 0) request.cache_salt = "a";
    request.skip_reading_prefix_cache = Pick(0, 19) == 0;
    request.sampling.max_tokens = Pick(1, 12);
    request.sampling.ignore_eos = true;
    if (Pick(0, 9) == 0) request.sampling.prompt_logprobs = 0;
    if (scheduler_->Add(request).ok()) live_[request.id] = {request, {}};
  }

  void AbortRandom() {
    if (live_.empty()) return;
    auto victim = std::next(live_.begin(), Pick(0, static_cast<int32_t>(live_.size()) - 1));
    ASSERT_TRUE(scheduler_->Abort(victim->first, &events_));
    events_.clear();
    live_.erase(victim);
  }

  void StartStep() {
    Flight flight;
    scheduler_->Schedule(&flight.plan);
    TakeTransfers();
    if (flight.plan.empty()) return;
    flights_.push_back(std::move(flight));
    if (!setup_.runs_late) RunModel(&flights_.back());
  }

  void RunModel(Flight* flight) {
    StatusOr<step::StepResult> result = model_.Run(flight->plan);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    flight->result = std::move(*result);
  }

  void FinishStep() {
    if (flights_.empty()) return;
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    if (!flight.result) RunModel(&flight);
    if (testing::Test::HasFatalFailure()) return;
    scheduler_->Update(std::move(*flight.result), &events_);
    for (const RequestEvent& event : events_) CheckEvent(event);
    events_.clear();
    TakeTransfers();
  }

  void CheckEvent(const RequestEvent& event) {
    const auto found = live_.find(event.id);
    ASSERT_NE(found, live_.end()) << "an event for a request that is gone";
    Live& live = found->second;
    const std::vector<int32_t>& prompt = live.request.prompt_token_ids;
    live.tokens.insert(live.tokens.end(), event.new_token_ids.begin(), event.new_token_ids.end());
    ASSERT_EQ(live.tokens, FakeModel::Continue(prompt, live.tokens.size(), kVocabSize));
    if (!event.finish_reason) return;
    ASSERT_EQ(*event.finish_reason, step::FinishReason::kLength) << event.error.ToString();
    live_.erase(found);
    ++num_finished_;
  }

  void TakeTransfers() {
    std::vector<KvTransfer> taken;
    scheduler_->TakeTransfers(&taken);
    for (KvTransfer& transfer : taken) copying_.push_back({std::move(transfer), std::nullopt});
  }

  // Copies some transfer, or answers some that was copied; in any order, now and then twice.
  void MoveTransfers() {
    std::vector<KvTransferResult> results;
    for (int n = Pick(0, 4); n > 0 && !copying_.empty(); --n) {
      const size_t which = random_() % copying_.size();
      Copying& copying = copying_[which];
      if (!copying.result) {
        copying.result = worker_.Run(copying.transfer, Pick(0, 99) < setup_.percent_failing);
        continue;
      }
      results.push_back(*copying.result);
      if (Pick(0, 19) == 0) results.push_back(*copying.result);
      copying_.erase(copying_.begin() + static_cast<ptrdiff_t>(which));
    }
    scheduler_->FinishTransfers(results);
    TakeTransfers();
  }

  void Drain() {
    for (int i = 0; i < 20000 && !testing::Test::HasFailure(); ++i) {
      if (!scheduler_->HasWork() && scheduler_->num_transfers_in_flight() == 0) break;
      StartStep();
      FinishStep();
      MoveTransfers();
    }
    if (testing::Test::HasFailure()) return;
    EXPECT_FALSE(scheduler_->HasWork());
    while (!flights_.empty()) FinishStep();
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(scheduler_->num_transfers_in_flight(), 0u);
    EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
    EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
  }

  const TransferSetup setup_;
  std::mt19937 random_;
  FakeModel model_;
  std::unique_ptr<kv_cache::KvConnector> connector_;
  PretendedWorker worker_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<RequestId, Live> live_;
  std::deque<Flight> flights_;
  std::vector<Copying> copying_;
  std::vector<RequestEvent> events_;
  uint64_t next_id_ = 1;
  int num_finished_ = 0;
};

}  // namespace

void RunTransferSimulation(const TransferSetup& setup, TransferReport* report) {
  Simulation(setup).Run(report);
}

}  // namespace pagemill::scheduler
