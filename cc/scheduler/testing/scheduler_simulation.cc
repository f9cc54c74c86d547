#include "cc/scheduler/testing/scheduler_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/kv_cache/connectors/file.h"
#include "cc/kv_cache/connectors/handover.h"
#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/scheduler/admission/queue_admission.h"
#include "cc/scheduler/admission/request_check.h"
#include "cc/scheduler/scheduler.h"
#include "cc/scheduler/testing/fake_worker.h"
#include "cc/scheduler/testing/hybrid_model.h"
#include "cc/scheduler/testing/random_request.h"
#include "cc/scheduler/testing/reference_request.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::FinishReason;
using step::RequestId;
using testing::Test;

std::unique_ptr<kv_cache::KvConnector> MakeConnector(const SimulationSetup& setup) {
  if (setup.medium == SimulatedMedium::kNone) return nullptr;
  if (setup.medium == SimulatedMedium::kFiles) {
    return std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{
        .max_blocks_in_flight = 8, .max_known_blocks = 64, .max_probe_blocks = 6});
  }
  if (setup.medium == SimulatedMedium::kPeer) {
    return std::make_unique<kv_cache::HandoverConnector>(std::string(32, 'a'));
  }
  return std::move(*kv_cache::TieredConnector::Create({.host_blocks = setup.host_blocks,
                                                       .disk_blocks = setup.disk_blocks,
                                                       .policy = setup.tier_policy,
                                                       .max_blocks_in_flight = 8}));
}

class Simulation {
 public:
  Simulation(const SimulationSetup& setup, SimulationReport* report)
      : setup_(setup),
        report_(report),
        random_(setup.seed),
        model_(setup.options),
        connector_(MakeConnector(setup)),
        worker_(&model_, &random_, setup.percent_failing) {
    StatusOr<std::unique_ptr<Scheduler>> made = Scheduler::Create(setup.options);
    PAGEMILL_CHECK(made.ok());
    scheduler_ = std::move(*made);
    PAGEMILL_CHECK(scheduler_->SetConnector(connector_.get()).ok());
  }

  void Run() {
    for (int i = 0; i < setup_.num_operations && !Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      RandomOperation();
      Check();
    }
    if (!Test::HasFailure()) Drain();
    report_->scheduler = scheduler_->stats();
    if (connector_ != nullptr) report_->connector = connector_->stats();
  }

 private:
  struct Flight {
    step::StepPlan plan;
    std::vector<RequestId> ids;  // of its entries
    std::optional<step::StepResult> result;
  };
  using Live = std::map<RequestId, ReferenceRequest>;  // in the order of their arrivals

  int32_t Pick(int32_t low, int32_t high) { return scheduler::Pick(low, high, &random_); }
  Live::iterator PickLive() {
    return std::next(live_.begin(), Pick(0, static_cast<int32_t>(live_.size()) - 1));
  }

  void RandomOperation() {
    const int32_t dice = Pick(0, 999);
    if (dice < 200) {
      AddRequest();
    } else if (dice < 220) {
      AbortRandom();
    } else if (dice < 230) {
      // It empties the connector too, which is to be used before.
      if (connector_ == nullptr || Pick(0, 4) == 0) ResetCache();
    } else if (dice < 240 && setup_.faults) {
      FailStep();
    } else if (dice < 290 && setup_.streams) {
      ExtendRandom();
    } else if (dice < 310 && setup_.controls) {
      ReleaseRandom();
    } else if (dice < 330 && setup_.controls) {
      LetTimePass();
    } else if (dice < 350 && setup_.controls) {
      dice < 336 ? Pause() : scheduler_->Resume();
    } else if (dice < 650 && flights_.size() < static_cast<size_t>(setup_.max_steps_in_flight)) {
      StartStep();
    } else if (dice < 850 || connector_ == nullptr) {
      FinishStep();
    } else {
      MoveTransfers();
    }
  }

  void Check() {
    const Status status = scheduler_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString();
    const SchedulerStats stats = scheduler_->stats();
    int64_t total = stats.num_running + stats.num_waiting;
    for (int64_t parked : stats.num_parked) total += parked;
    ASSERT_EQ(total, static_cast<int64_t>(live_.size())) << "a request is lost";
    const auto held = std::count_if(live_.begin(), live_.end(),
                                    [](const auto& entry) { return entry.second.held(); });
    ASSERT_EQ(stats.num_parked[static_cast<size_t>(ParkReason::kHeld)], held);
  }

  void AddRequest() {
    const bool again = !live_.empty() && Pick(0, 49) == 0;
    const RequestId id = again ? PickLive()->first : RequestId(next_id_++);
    step::Request request = MakeRandomRequest(setup_, id, now_us_, &random_);
    if (setup_.medium == SimulatedMedium::kPeer) HandOver(&request);
    const Status possible = scheduler_->request_check().Check(request);
    const Status fits = scheduler_->queue_admission().Check(request, std::nullopt);
    const SchedulerOptions& options = setup_.options;
    if (options.max_waiting_tokens == 0 && options.max_waiting_per_tenant == 0) {
      EXPECT_EQ(fits.ok(), live_.size() < static_cast<size_t>(options.max_num_seqs +
                                                              options.max_waiting_requests));
    }
    const Status status = scheduler_->Add(request);
    if (!possible.ok() || !fits.ok()) {
      EXPECT_EQ(status, possible.ok() ? fits : possible);
      return;
    }
    EXPECT_EQ(status.code(), again ? StatusCode::kFailedPrecondition : StatusCode::kOk);
    if (again) return;
    const int32_t most = scheduler_->request_check().max_request_tokens();
    live_.emplace(id, ReferenceRequest(request, {options.vocab_size, most, options.token_rows}));
  }

  // Some requests send their KV when they end, some load what another one sent.
  void HandOver(step::Request* request) {
    if (Pick(0, 1) == 0) {
      request->kv_transfer_params = {{"do_remote_decode", "true"}};
    } else if (!handovers_.empty() && !request->streaming_input) {
      const auto last = static_cast<int32_t>(handovers_.size()) - 1;
      const auto& [sender, params] = handovers_[static_cast<size_t>(Pick(0, last))];
      request->prompt_token_ids = sender.prompt_token_ids;
      request->cache_salt = sender.cache_salt;
      request->kv_transfer_params = params;
    }
  }

  void AbortRandom() {
    EXPECT_FALSE(scheduler_->Abort(RequestId(next_id_ + 5), &events_));
    if (live_.empty()) return;
    const auto victim = PickLive();
    ASSERT_TRUE(scheduler_->Abort(victim->first, &events_));
    ExpectEnds({victim->first}, FinishReason::kAbort, StatusCode::kOk);
  }

  // The events are exactly the ends of these requests, in this order.
  void ExpectEnds(const std::vector<RequestId>& ids, FinishReason reason, StatusCode code) {
    ASSERT_EQ(events_.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(events_[i].id, ids[i]);
      EXPECT_EQ(events_[i].finish_reason, reason);
      EXPECT_EQ(events_[i].error.code(), code);
      EXPECT_TRUE(events_[i].new_token_ids.empty());
      EXPECT_EQ(live_.erase(ids[i]), 1u);
    }
    events_.clear();
  }

  void ResetCache() {
    const bool preempts = setup_.controls && Pick(0, 2) == 0;
    report_->num_resets += preempts && scheduler_->stats().num_running > 0;
    const bool done = scheduler_->ResetPrefixCache(preempts);
    const SchedulerStats stats = scheduler_->stats();
    const auto loading = stats.num_parked[static_cast<size_t>(ParkReason::kKvLoad)];
    if (done) {
      EXPECT_EQ(stats.num_running + loading, 0);
    } else if (connector_ == nullptr) {
      EXPECT_GT(stats.num_running, 0);
    } else {  // loads whose requests are gone count, too; stores do not
      EXPECT_GT(stats.num_running + static_cast<int64_t>(scheduler_->num_transfers_in_flight()), 0);
    }
    EXPECT_TRUE(!preempts || stats.num_running == 0);
  }

  void ExtendRandom() {
    EXPECT_EQ(scheduler_->Extend(RequestId(next_id_ + 5), {{1}}).code(), StatusCode::kNotFound);
    std::vector<RequestId> open;
    for (const auto& [id, reference] : live_) {
      if (reference.input_open() || Pick(0, 19) == 0) open.push_back(id);
    }
    if (open.empty()) return;
    const RequestId id = open[static_cast<size_t>(Pick(0, static_cast<int32_t>(open.size()) - 1))];
    std::vector<int32_t> tokens(static_cast<size_t>(Pick(0, Pick(0, 5) == 0 ? 30 : 6)));
    for (int32_t& token : tokens) token = Pick(0, 4);
    Extend(id, tokens, static_cast<InputPart>(Pick(0, 2)));
  }

  void Extend(RequestId id, const std::vector<int32_t>& tokens, InputPart part) {
    ReferenceRequest& reference = live_.at(id);
    const StatusCode expected = reference.ExtendCode(tokens, part);
    ASSERT_EQ(scheduler_->Extend(id, {tokens, {}, part}).code(), expected);
    if (expected == StatusCode::kOk) reference.Extend(tokens, part);
  }

  void ReleaseRandom() {
    EXPECT_FALSE(scheduler_->Release(RequestId(next_id_ + 5)));
    for (auto& [id, reference] : live_) {
      if (reference.held() ? Pick(0, 2) > 0 : Pick(0, 9) > 0) continue;
      EXPECT_EQ(scheduler_->Release(id), reference.held());
      reference.Release();
    }
  }

  void LetTimePass() {
    now_us_ += Pick(0, 60);
    std::set<std::tuple<int64_t, RequestId>> late;
    for (const auto& [id, reference] : live_) {
      const std::optional<int64_t> deadline = reference.NextDeadline();
      if (deadline && *deadline <= now_us_) late.insert({*deadline, id});
    }
    std::vector<RequestId> ids;
    for (const auto& [deadline, id] : late) ids.push_back(id);
    scheduler_->Expire(now_us_, &events_);
    ExpectEnds(ids, FinishReason::kError, StatusCode::kDeadlineExceeded);
    report_->num_expired += static_cast<int>(ids.size());
  }

  void Pause() {
    const auto mode = static_cast<PauseMode>(Pick(0, 2));
    ++report_->num_pauses;
    std::vector<RequestId> ids;
    for (const auto& [id, reference] : live_) ids.push_back(id);
    scheduler_->Pause(mode, &events_);
    ExpectEnds(mode == PauseMode::kAbort ? ids : std::vector<RequestId>(), FinishReason::kAbort,
               StatusCode::kOk);
  }

  void StartStep() {
    Flight flight;
    StepBudget budget;
    if (setup_.budgets && Pick(0, 1) == 0) budget.prefill_tokens = Pick(1, 16);
    scheduler_->Schedule(&flight.plan, budget);
    CheckBudget(flight.plan, budget);
    TakeTransfers();
    const std::optional<PauseMode> pause = scheduler_->pause_mode();
    EXPECT_TRUE(flight.plan.empty() || pause != PauseMode::kKeep);
    if (flight.plan.empty()) return;
    for (const step::ScheduledRequest& entry : flight.plan.scheduled) {
      if (entry.start) holders_[entry.index] = entry.start->id;
      flight.ids.push_back(holders_.at(entry.index));
      const auto found = live_.find(flight.ids.back());
      ASSERT_NE(found, live_.end()) << "a request runs that is gone";
      ASSERT_FALSE(found->second.held());
      ASSERT_TRUE(found->second.started() || !pause) << "a request starts in a pause";
      found->second.Start();
    }
    flights_.push_back(std::move(flight));
    if (!setup_.runs_late) RunModel(&flights_.back());
  }

  void CheckBudget(const step::StepPlan& plan, const StepBudget& budget) {
    if (!setup_.options.chunked_prefill || !setup_.options.chunked_media_input) return;
    int64_t prefill_tokens = 0;
    for (const step::ScheduledRequest& entry : plan.scheduled) {
      if (entry.token_ids.size() > 1) prefill_tokens += entry.token_ids.size();
    }
    ASSERT_LE(prefill_tokens, budget.prefill_tokens);
  }

  void RunModel(Flight* flight) {
    if (flight->result) return;
    StatusOr<step::StepResult> result = model_.Run(flight->plan);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    flight->result = std::move(*result);
  }

  Flight PopFlight() {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    return flight;
  }

  void FinishStep() {
    if (flights_.empty()) return;
    Flight flight = PopFlight();
    RunModel(&flight);
    if (Test::HasFatalFailure()) return;
    EXPECT_TRUE(scheduler_->Update(std::move(*flight.result), &events_).ok());
    TakeEvents(flight, {});
  }

  // The runner loses a whole step, or fails a request of it, or answers nonsense.
  void FailStep() {
    if (flights_.empty()) return;
    Flight flight = PopFlight();
    if (flights_.empty() && !flight.result && Pick(0, 1) == 0) {
      model_.Skip(flight.plan);  // it did not even start
      EXPECT_TRUE(scheduler_->FailStep(Internal("injected"), &events_).ok());
      TakeEvents(flight, {flight.ids.begin(), flight.ids.end()});
      return;
    }
    RunModel(&flight);
    if (Test::HasFatalFailure()) return;
    step::StepResult& result = *flight.result;
    const auto which = static_cast<size_t>(Pick(0, static_cast<int32_t>(flight.ids.size()) - 1));
    std::set<RequestId> failing{flight.ids[which]};
    const int32_t how = Pick(0, 5);
    if (how < 3) {
      failing.insert(flight.ids.begin(), flight.ids.end());
      if (how == 1) ++result.step_id;
      if (how == 2) result.results.pop_back();
    } else if (how == 3) {
      result.results[which].failure = Internal("injected");
    } else if (how == 4) {
      result.results[which].index = step::RequestIndex(setup_.options.max_num_seqs);
    } else {
      result.results[which].sampled_token_ids.push_back(setup_.options.vocab_size);
    }
    if (how == 0) {
      EXPECT_TRUE(scheduler_->FailStep(Internal("injected"), &events_).ok());
    } else {
      EXPECT_TRUE(scheduler_->Update(std::move(result), &events_).ok());
    }
    TakeEvents(flight, failing);
  }

  // What a step reports: events of its requests, at most one each.
  void TakeEvents(const Flight& flight, const std::set<RequestId>& failing) {
    std::set<RequestId> seen;
    for (const RequestEvent& event : events_) {
      ASSERT_TRUE(seen.insert(event.id).second) << "news of a request twice";
      ASSERT_EQ(std::count(flight.ids.begin(), flight.ids.end(), event.id), 1);
      const auto found = live_.find(event.id);
      ASSERT_NE(found, live_.end()) << "news of a request that is gone";
      if (failing.contains(event.id)) {
        EXPECT_EQ(event.finish_reason, FinishReason::kError);
        EXPECT_EQ(event.error.code(), StatusCode::kInternal);
        ++report_->num_failed;
      } else {
        ASSERT_TRUE(event.error.ok()) << event.error.ToString();
        report_->num_turns += event.turn_finished.has_value();
        if (!event.kv_transfer_params.empty()) {
          ASSERT_TRUE(event.finish_reason);
          handovers_.push_back({found->second.request(), event.kv_transfer_params});
          if (handovers_.size() > 8) handovers_.pop_front();
        }
        if (!found->second.Take(event)) continue;
        ++report_->num_finished;
      }
      live_.erase(found);
    }
    events_.clear();
    TakeTransfers();
  }

  void TakeTransfers() {
    std::vector<kv_cache::KvTransfer> taken;
    scheduler_->TakeTransfers(&taken);
    worker_.Start(std::move(taken));
  }

  void MoveTransfers() {
    std::vector<kv_cache::KvTransferResult> results;
    worker_.Move(&results);
    scheduler_->FinishTransfers(results);
    TakeTransfers();
    if (Pick(0, 99) < setup_.percent_abandoned) {
      const std::optional<kv_cache::TransferId> id = worker_.RandomTransfer();
      if (id) scheduler_->AbandonTransfer(*id);
    }
    if (Pick(0, 29) == 0) worker_.LoseSomeFile();
    EXPECT_LE(worker_.NumSending(), (setup_.options.kv_cache.num_blocks - 1) / 2);
  }

  // Without new requests everything must come to its end, and all blocks must come back.
  void Drain() {
    scheduler_->Resume();
    for (int i = 0; i < 20000 && !Test::HasFailure(); ++i) {
      if (!scheduler_->HasWork() && scheduler_->num_transfers_in_flight() == 0) break;
      for (auto& [id, reference] : live_) {
        if (reference.held()) {
          EXPECT_TRUE(scheduler_->Release(id));
        }
        reference.Release();
        const bool more = reference.ExtendCode({}, InputPart::kLast) != StatusCode::kOk;
        if (reference.input_open()) Extend(id, std::vector<int32_t>(more, 1), InputPart::kLast);
      }
      StartStep();
      FinishStep();
      MoveTransfers();
      Check();
    }
    if (Test::HasFailure()) return;
    while (!flights_.empty()) FinishStep();
    EXPECT_TRUE(live_.empty());
    EXPECT_FALSE(scheduler_->HasWork());
    EXPECT_EQ(scheduler_->num_transfers_in_flight(), 0u);
    EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
    EXPECT_TRUE(scheduler_->ResetPrefixCache());
    EXPECT_EQ(scheduler_->CheckIntegrity(), OkStatus());
  }

  const SimulationSetup setup_;
  SimulationReport* const report_;
  std::mt19937 random_;
  HybridModel model_;
  const std::unique_ptr<kv_cache::KvConnector> connector_;
  FakeWorker worker_;
  std::unique_ptr<Scheduler> scheduler_;
  Live live_;
  std::map<step::RequestIndex, RequestId> holders_;
  std::deque<Flight> flights_;
  // Requests that sent their KV lately, and what their clients got.
  std::deque<std::pair<step::Request, step::KvTransferParams>> handovers_;
  std::vector<RequestEvent> events_;
  int64_t now_us_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace

void RunSchedulerSimulation(const SimulationSetup& setup, SimulationReport* report) {
  Simulation(setup, report).Run();
}

}  // namespace pagemill::scheduler
