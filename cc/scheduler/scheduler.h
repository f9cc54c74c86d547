// File: cc/scheduler/scheduler.h
// Decides which tokens of which requests run in the next step, and what a step's result means for
// them. Knows no tensor, no device, no clock and no randomness: the same calls give the same plans.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, Scheduler::Create(options));
//   PAGEMILL_RETURN_IF_ERROR(scheduler->Add(std::move(request)));
//   StepPlan plan;
//   std::vector<RequestEvent> events;
//   while (scheduler->HasWork()) {
//     scheduler->Schedule(&plan);
//     PAGEMILL_RETURN_IF_ERROR(scheduler->Update(run_the_model(plan), &events));
//     ... hand out `events`, events.clear() ...
//   }
//
// A step: running requests first, in the order of their starts, then waiting ones as the policy
// orders them, within budgets of tokens, requests and rows of logits. A running request that finds
// no free block preempts the policy's victim, which gives up its blocks and computes them again
// later (the prefix cache usually gives most of them back). A waiting request starts when its whole
// known sequence fits, so that it does not starve half way. docs/scheduling.md has the reasons.
//
// Several steps may be planned before the first result is in (results come in the order of the
// plans). Chunks of a prompt need no result and go on. A request whose next token is not known yet
// has a placeholder for it in the later plan (SchedulerOptions::decode_ahead), or no place there.
// Results of requests that ended, were preempted or parked meanwhile are dropped.
//
// A runner may propose draft tokens with its results; they are verified in the request's next step.
// If that is planned already, the number of them becomes placeholders of the step after it: drafts
// that the runner chooses when that one begins. Until the result says how many were accepted, later
// plans count on all of them, and the runner corrects the places of their tokens.
//
// Cost of Schedule() + Update(): O(requests in the plan + blocks that change hands); no history,
// block table or request is copied except for a request that starts. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_SCHEDULER_H_
#define PAGEMILL_CC_SCHEDULER_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/transfer.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/pause_mode.h"
#include "cc/scheduler/request_event.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/scheduler/scheduler_stats.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::kv_cache {
class BlockAges;
class EventLog;
class HeldPrefixes;
class KvCacheManager;
class KvConnector;
struct PrefixMatch;
}  // namespace pagemill::kv_cache

namespace pagemill::scheduler {

class Admission;
class EncoderCache;
class Policy;
class QueueAdmission;
class RequestCheck;
struct Stop;
namespace internal {
class DraftAccounts;
class LoadCoordinator;
class Parking;
class RequestSlots;
class StepsInFlight;
class TokenBudget;
struct PlannedEntry;
struct PlannedStep;
}  // namespace internal

// What one step may cost beside SchedulerOptions: an input of the call, from a caller that knows
// what steps take (engine/step_budget.h). Requests that decode run whatever it says.
struct StepBudget {
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  // Prompt tokens, and tokens that a preempted request computes again. At least 1. A prompt or
  // media item that must not be cut may exceed what is left of it.
  int32_t prefill_tokens = kNoLimit;
};

class Scheduler {
 public:
  // kInvalidArgument if the options make no sense.
  static StatusOr<std::unique_ptr<Scheduler>> Create(const SchedulerOptions& options);
  ~Scheduler();

  // Queues a request, or says why not: kInvalidArgument (RequestCheck), kFailedPrecondition (the id
  // is in use), kResourceExhausted (QueueAdmission, unless the host has an account of its own).
  Status Add(step::Request request, QueueAccount account = QueueAccount::kScheduler);
  // Ends a request; its event is appended. False if there is none with this id.
  bool Abort(step::RequestId id, std::vector<RequestEvent>* events);
  // Lets a request start that was added with `starts_held`. False if there is none with this id
  // that still waits for it.
  bool Release(step::RequestId id);

  // Appends input to a request with `streaming_input`. kNotFound: there is no such request.
  // kFailedPrecondition: its input is complete, or a turn is being generated. kInvalidArgument: it
  // would not be admitted with this input. O(tokens and media of the chunk), on average.
  Status Extend(step::RequestId id, InputChunk chunk);
  // Ends requests whose start deadline or deadline is not after `now_us`, in the order of the
  // deadlines; their events have kDeadlineExceeded. O(log n) for each of them, else O(1).
  void Expire(int64_t now_us, std::vector<RequestEvent>* events);
  // The next deadline to pass; empty if no request has one.
  std::optional<int64_t> next_deadline_us() const;
  // Until Resume(). A second call changes the mode. Events are those of requests that end by it.
  void Pause(PauseMode mode, std::vector<RequestEvent>* events);
  void Resume();
  std::optional<PauseMode> pause_mode() const { return pause_mode_; }

  // Writes the next step over `plan`, reusing its memory. The plan is empty if nothing can run
  // now: there is no work, or all of it waits for results. An empty plan is not to be run nor
  // reported.
  void Schedule(step::StepPlan* plan, StepBudget budget = {});
  // Running requests that compute no part of their prompt, those of one of several pipeline stages:
  // which the next plan lets decode, at most.
  int32_t num_decoding() const;
  // Takes the result of the oldest plan without one; appends events in the order of the plan. A
  // result that does not fit its plan fails the plan's requests. Moves tokens and logprobs out of
  // `result`. kFailedPrecondition, and nothing happens, if no plan is without a result.
  Status Update(step::StepResult&& result, std::vector<RequestEvent>* events);
  // Instead of Update(): the runner failed the oldest plan without a result; its requests end with
  // `why`. kFailedPrecondition: as Update().
  Status FailStep(const Status& why, std::vector<RequestEvent>* events);

  // KV that lives elsewhere (docs/kv_tiers.md). The connector outlives the scheduler; null = none.
  // kFailedPrecondition while transfers are under way, kUnimplemented if a group of layers has
  // other blocks than the cache.
  Status SetConnector(kv_cache::KvConnector* connector);
  // Appends the transfers to start now. To be called after Schedule(), Update() and
  // FinishTransfers(); copying must not wait for a step, nor a step for copying.
  void TakeTransfers(std::vector<kv_cache::KvTransfer>* transfers);
  // Takes what the worker says; results of transfers that are not under way are counted and
  // dropped.
  void FinishTransfers(std::span<const kv_cache::KvTransferResult> results);
  // Abandons a transfer that takes too long: a request that waits for it computes instead. Its
  // pages stay taken until its result comes, so the worker has to be notified, too. While more than
  // kMostAbandonedTransfers are under way, the connector is not used; those with a peer
  // (Handover::peer) stop only what comes from this peer.
  void AbandonTransfer(kv_cache::TransferId id);
  // Each costs a request that waits for it the whole timeout, so a few are enough to tell a worker
  // that hangs from one transfer that is slow.
  static constexpr size_t kMostAbandonedTransfers = 3;
  size_t num_transfers_in_flight() const;
  // Blocks that are copied or pinned without a request.
  kv_cache::HeldPrefixes& held_prefixes() { return *held_prefixes_; }
  // What came to the prefix cache and went; null if KvCacheOptions::max_events is 0.
  const kv_cache::EventLog* kv_events();
  // How old cached KV becomes; null if KvCacheOptions::block_age_sample is 0. The host sets its
  // time before calls that use blocks: Schedule(), Update(), FailStep(), Abort() and Expire().
  kv_cache::BlockAges* block_ages();

  bool HasWork() const { return !requests_.empty(); }
  size_t num_steps_in_flight() const;
  // What Add() checks of a request alone. Immutable: any thread may use it.
  const RequestCheck& request_check() const;
  // The scheduler's account of the queue, for estimates; a host that measures steps reports to its
  // estimator.
  QueueAdmission& queue_admission();
  SchedulerStats stats() const;
  // Forgets all cached prefixes and pins, those that the connector finds too. False, and nothing is
  // forgotten, if the connector cannot forget, while loads are under way, or while requests run,
  // unless those are preempted for it (they compute everything again). Without `reset_connector`
  // the connector keeps what it has: KV that can be loaded again.
  bool ResetPrefixCache(bool preempt_running = false, bool reset_connector = true);
  // Forgets all embeddings of media that no running request needs.
  void ResetEncoderCache();

  // Invariants of requests, slots, queue and cache. O(requests + blocks).
  Status CheckIntegrity() const;

 private:
  explicit Scheduler(const SchedulerOptions& options);

  // scheduler.cc: ways through the states of a request. It is in the policy's queue, parked, or
  // runs in a slot.
  void Enqueue(RequestState* request);
  void StopRunning(RequestState* request);
  void Park(RequestState* request, ParkReason reason, RequestState* producer = nullptr);
  void Unpark(RequestState* request);
  void UnparkAll(std::span<RequestState* const> requests);
  void UnparkAll(ParkReason reason);
  RequestState* FindParked(step::RequestId id, ParkReason reason) const;  // null if it is not
  void Finish(RequestState* request, step::FinishReason reason, RequestEvent* event);
  void TakeRoutedExperts(RequestState* request, RequestEvent* event) const;
  void DropStopped();
  Status CheckRequest(const RequestState& request) const;

  // scheduler_plan.cc
  struct Run;
  void PreemptForPriority();
  bool TryReserve(RequestState* request, size_t num_slots, int32_t* promised);
  kv_cache::PrefixMatch FindPrefix(RequestState* request);
  void ScheduleRunning(step::StepPlan* plan);
  void ScheduleWaiting(step::StepPlan* plan);
  bool ParkToStart(RequestState* request, const kv_cache::PrefixMatch& match, int32_t promised);
  int32_t NumPromisedBlocks(const RequestState& request) const;
  int32_t NumPromisedBlocks() const;
  bool MakeRoom(size_t position, int32_t num_tokens);
  void Preempt(size_t position);
  void Start(RequestState* request, const kv_cache::PrefixMatch& match,
             step::ScheduledRequest* entry);
  void CountPrefix(RequestState* request, const kv_cache::PrefixMatch& match);
  void Place(RequestState* request, const Run& run, step::ScheduledRequest* entry);

  // scheduler_update.cc
  void FailEntries(const internal::PlannedStep& step, const Status& why,
                   std::vector<RequestEvent>* events);
  void Apply(RequestState* request, const internal::PlannedEntry& entry,
             step::RequestResult* result, RequestEvent* event);
  void FinishPrompt(RequestState* request, const internal::PlannedEntry& entry,
                    step::RequestResult* result, RequestEvent* event);
  std::optional<Stop> AppendTokens(RequestState* request, const internal::PlannedEntry& entry,
                                   step::RequestResult* result, RequestEvent* event);
  void FinishTurn(RequestState* request, const Stop& stop, RequestEvent* event);

  const SchedulerOptions options_;
  SchedulerStats counters_;  // its gauges are not kept up to date
  const std::unique_ptr<kv_cache::KvCacheManager> cache_;
  const std::unique_ptr<Admission> admission_;
  const std::unique_ptr<EncoderCache> encoder_cache_;
  const std::unique_ptr<Policy> policy_;
  const bool charges_;  // does the policy want to know what it serves?
  const std::unique_ptr<internal::Parking> parking_;
  const std::unique_ptr<internal::RequestSlots> slots_;
  const std::unique_ptr<internal::TokenBudget> budget_;
  const std::unique_ptr<internal::DraftAccounts> drafts_;
  const std::unique_ptr<internal::LoadCoordinator> loads_;
  const std::unique_ptr<internal::StepsInFlight> in_flight_;
  const std::unique_ptr<kv_cache::HeldPrefixes> held_prefixes_;

  std::unordered_map<step::RequestId, std::unique_ptr<RequestState>> requests_;
  std::vector<RequestState*> running_;   // in the policy's order: that of their starts, mostly
  bool running_changed_ = false;         // some of them run no more; until DropStopped()
  std::vector<RequestState*> reserved_;  // during PreemptForPriority()
  std::vector<RequestState*> finished_;  // during Update(), before they are dropped
  std::optional<PauseMode> pause_mode_;
  size_t num_entries_ = 0;  // of the plan under construction
  // The waiting request that was to start next, when one was last looked at, found no blocks.
  bool lacks_blocks_ = false;
  uint64_t num_arrivals_ = 0;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_SCHEDULER_H_
