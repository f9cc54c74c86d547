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
//     scheduler->Update(run_the_model(plan), &events);
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

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/held_prefixes.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/admission.h"
#include "cc/scheduler/admission/deadline_queue.h"
#include "cc/scheduler/admission/queue_admission.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/kv_transfers.h"
#include "cc/scheduler/parked_requests.h"
#include "cc/scheduler/pause_mode.h"
#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/prefixes_in_flight.h"
#include "cc/scheduler/request_event.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/resources/adapter_slots.h"
#include "cc/scheduler/resources/encoder_cache.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/scheduler/scheduler_stats.h"
#include "cc/scheduler/stop_check.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::scheduler {

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

  // Queues a request, or says why not: kInvalidArgument (Admission), kFailedPrecondition (the id is
  // in use), kResourceExhausted (QueueAdmission).
  Status Add(step::Request request);
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
  std::optional<int64_t> next_deadline_us() const { return deadlines_.next_time_us(); }
  // Until Resume(). A second call changes the mode. Events are those of requests that end by it.
  void Pause(PauseMode mode, std::vector<RequestEvent>* events);
  void Resume();
  std::optional<PauseMode> pause_mode() const { return pause_mode_; }

  // Writes the next step over `plan`, reusing its memory. The plan is empty if nothing can run
  // now: there is no work, or all of it waits for results. An empty plan is not to be run nor
  // reported.
  void Schedule(step::StepPlan* plan, StepBudget budget = {});
  // Running requests that compute no part of their prompt: those that the next plan lets decode, at
  // most.
  int32_t num_decoding() const {
    return static_cast<int32_t>(running_.size()) - num_partial_prefills_;
  }
  // Takes the result of the oldest plan without one; appends events in the order of the plan. A
  // result that does not fit its plan fails the plan's requests. Moves tokens and logprobs out of
  // `result`.
  void Update(step::StepResult&& result, std::vector<RequestEvent>* events);
  // Instead of Update(): the runner failed the oldest plan without a result; its requests end with
  // `why`.
  void FailStep(const Status& why, std::vector<RequestEvent>* events);

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
  // pages stay taken until its result comes. While more than KvTransfers::kMostAbandoned such
  // transfers are under way, the connector is not used.
  void AbandonTransfer(kv_cache::TransferId id);
  size_t num_transfers_in_flight() const { return transfers_.size(); }
  // Blocks that are copied or pinned without a request.
  kv_cache::HeldPrefixes& held_prefixes() { return held_prefixes_; }
  // What came to the prefix cache and went; null if KvCacheOptions::max_events is 0.
  const kv_cache::EventLog* kv_events() { return cache_.events(); }

  bool HasWork() const { return !requests_.empty(); }
  size_t num_steps_in_flight() const { return in_flight_.size(); }
  const Admission& admission() const { return admission_; }
  // The account of the queue, for estimates; the caller that measures steps reports to its
  // estimator.
  QueueAdmission& queue_admission() { return queue_; }
  SchedulerStats stats() const;
  // Forgets all cached prefixes and pins, those that the connector finds too. False, and nothing is
  // forgotten, if the connector cannot forget, while loads are under way, or while requests run,
  // unless those are preempted for it (they compute everything again). Without `reset_connector`
  // the connector keeps what it has: KV that can be loaded again.
  bool ResetPrefixCache(bool preempt_running = false, bool reset_connector = true);
  // Forgets all embeddings of media that no running request needs.
  void ResetEncoderCache() { encoder_cache_.EvictUnreferenced(); }

  // Invariants of requests, slots, queue and cache. O(requests + blocks).
  Status CheckIntegrity() const;

 private:
  struct Slot {
    RequestState* holder = nullptr;
    uint32_t generation = 0;  // changes when the holder does: late results are recognised by it
  };
  struct InFlightEntry {
    step::RequestIndex index;
    uint32_t generation;
    int32_t num_tokens;  // without drafts
    int32_t num_drafts;
    bool knows_drafts;  // they are those that the request has until the result comes
    bool sample;
    bool prompt_logprobs;
  };
  struct InFlightStep {
    uint64_t step_id = 0;
    std::vector<InFlightEntry> entries;
  };
  struct Budget {
    int32_t tokens;
    int32_t rows;
    int32_t prefill_tokens;      // of `tokens`, for prefills
    int32_t prefill_shares = 0;  // among so many partial ones; 0 = not shared
  };

  explicit Scheduler(const SchedulerOptions& options);

  // scheduler.cc
  void ReleaseSlot(RequestState* request);
  void StopRunning(RequestState* request);
  void Finish(RequestState* request, step::FinishReason reason, RequestEvent* event);
  Status CheckRequest(const RequestState& request) const;

  // scheduler_inputs.cc
  void GrowPrompt(RequestState* request, InputChunk chunk);
  void FinishInput(RequestState* request);
  void FinishTurn(RequestState* request, const Stop& stop, RequestEvent* event);

  // scheduler_control.cc
  void AbortAll(std::vector<RequestEvent>* events);

  // scheduler_parked.cc. A request of any status parks, even parked already, and gives up its
  // blocks. Unpark() sends the request to the policy's queue.
  void Park(RequestState* request, ParkReason reason);
  void Unpark(RequestState* request);
  void LeaveParked(RequestState* request);
  void Enqueue(RequestState* request);
  RequestState* FindParked(step::RequestId id, ParkReason reason) const;  // null if it is not
  bool WaitForAdapter(RequestState* request);
  bool WaitForEncoder(RequestState* request);
  void WakeForStep();
  bool WaitForPrefix(RequestState* request, const kv_cache::PrefixMatch& match);
  void AdvancePrefix(RequestState* request);
  void UnparkAwake();

  // scheduler_plan.cc
  void GiveWay();
  bool Seat(RequestState* request, size_t num_slots, int32_t* promised);
  bool HasBlocksFor(RequestState* request, int32_t num_reserved_blocks);
  void ScheduleRunning(Budget* budget, step::StepPlan* plan);
  void ScheduleWaiting(Budget* budget, step::StepPlan* plan);
  int32_t NumReachableTokens(const RequestState& request) const;
  int32_t NumTokensToRun(const RequestState& request, const Budget& budget) const;
  int32_t NumTokensWithMedia(const RequestState& request, const Budget& budget) const;
  int32_t MostTokensToRun(const RequestState& request, const Budget& budget) const;
  bool LacksEncoder(const RequestState& request, const Budget& budget) const;
  int32_t NumPromisedBlocks(const RequestState& request) const;
  int32_t NumPromisedBlocks() const;
  bool ReadsPrefixCache(const RequestState& request) const;
  static bool NeedsPromptLogprobs(const RequestState& request);
  bool MakeRoom(size_t position, int32_t num_tokens);
  void Preempt(size_t position);
  void Start(RequestState* request, const kv_cache::PrefixMatch& match,
             step::ScheduledRequest* entry);
  struct Run {  // of one request in this step
    int32_t num_tokens = 0;
    int32_t num_drafts = 0;
    const kv_cache::PrefixMatch* match = nullptr;  // where it starts
  };
  void Place(RequestState* request, const Run& run, Budget* budget, step::ScheduledRequest* entry);
  step::ScheduledRequest* NextEntry(step::StepPlan* plan);

  // scheduler_prefill.cc
  enum class PartialStart { kNow, kLater, kParked };
  bool IsLong(const RequestState& request) const;
  void SetPrefillsPartly(RequestState* request, bool partly);
  void SharePrefills(Budget* budget) const;
  static int32_t PrefillShare(const Budget& budget, int32_t num_tokens);
  static void TakePrefillTokens(int32_t num_tokens, Budget* budget);
  PartialStart StartPartially(RequestState* request);
  void UnparkLongPrefill();

  // scheduler_drafts.cc
  int32_t NumDraftsToRun(const RequestState& request, int32_t num_tokens, int32_t num_behind,
                         const Budget& budget) const;
  bool WaitsForRejections(const RequestState& request, int32_t num_tokens) const;
  static void PlaceDrafts(const RequestState& request, int32_t num_drafts,
                          step::ScheduledRequest* entry);
  Status CheckSampled(const RequestState& request, const InFlightEntry& entry,
                      const step::RequestResult& result) const;
  void SettleDrafts(RequestState* request, const InFlightEntry& entry, int32_t num_verified,
                    int32_t num_accepted);
  void ProposeDrafts(RequestState* request, std::vector<int32_t>&& draft_token_ids);
  // scheduler_transfers.cc
  bool FetchKv(RequestState* request, const kv_cache::PrefixMatch& match, int32_t promised);
  void StartLoad(RequestState* request, const kv_cache::PrefixMatch& match, int32_t end);
  void PlanTransfers(std::vector<kv_cache::KvTransfer>* planned, KvLoad* load);
  int32_t NumLoadedTokens(const KvLoad& load) const;
  void EndLoad(KvLoad* load);
  void OfferStores(const RequestState& request, int32_t num_tokens);
  void PlanStores();
  void AskAgain();
  void DetachLoad(const RequestState& request);
  Status CheckTransfers(std::vector<const kv_cache::RequestBlocks*>* holders) const;

  // scheduler_update.cc
  InFlightStep PopOldestStep();
  void FailEntries(const InFlightStep& step, const Status& why, std::vector<RequestEvent>* events);
  Status CheckResult(const RequestState& request, const InFlightEntry& entry,
                     const step::RequestResult& result) const;
  void Apply(RequestState* request, const InFlightEntry& entry, step::RequestResult* result,
             RequestEvent* event);
  void FinishPrompt(RequestState* request, const InFlightEntry& entry, step::RequestResult* result,
                    RequestEvent* event);
  std::optional<Stop> AppendTokens(RequestState* request, const InFlightEntry& entry,
                                   step::RequestResult* result, RequestEvent* event);
  void DropStopped();

  const SchedulerOptions options_;
  kv_cache::KvCacheManager cache_;
  const Admission admission_;
  QueueAdmission queue_;
  AdapterSlots adapters_;
  EncoderCache encoder_cache_;
  const std::unique_ptr<Policy> policy_;
  const bool charges_;  // does the policy want to know what it serves?

  std::unordered_map<step::RequestId, std::unique_ptr<RequestState>> requests_;
  ParkedRequests parked_;
  DeadlineQueue deadlines_;
  std::optional<PauseMode> pause_mode_;
  PrefixesInFlight prefixes_in_flight_;
  std::vector<RequestState*> awake_;    // during a call: waited for a prefix, need not any longer
  std::vector<RequestState*> running_;  // in the policy's order: that of their starts, mostly
  int32_t num_partial_prefills_ = 0;    // of running_
  int32_t num_long_partial_prefills_ = 0;  // of those, as options_ count them
  bool running_changed_ = false;           // some of them run no more; until DropStopped()
  std::vector<Slot> slots_;
  std::vector<step::RequestIndex> free_slots_;  // a stack
  std::vector<step::RequestIndex> released_;    // since the last plan
  std::vector<RequestState*> seated_;           // during GiveWay
  std::vector<RequestState*> finished_;         // during Update, before they are dropped

  kv_cache::KvConnector* connector_ = nullptr;
  KvTransfers transfers_;
  kv_cache::HeldPrefixes held_prefixes_{&cache_};
  std::vector<kv_cache::BlockContent> to_store_;  // during a call: filled blocks

  std::deque<InFlightStep> in_flight_;
  std::vector<InFlightEntry> spare_entries_;  // memory of the last step that came back
  size_t num_entries_ = 0;                    // of the plan under construction
  uint64_t num_arrivals_ = 0;
  int64_t num_started_ = 0;  // of requests_
  uint64_t num_plans_ = 0;
  SchedulerStats counters_;  // its gauges are not kept up to date
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_SCHEDULER_H_
