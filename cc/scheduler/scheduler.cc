#include "cc/scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/kv_cache/held_prefixes.h"
#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/admission.h"
#include "cc/scheduler/internal/draft_accounts.h"
#include "cc/scheduler/internal/load_coordinator.h"
#include "cc/scheduler/internal/parking.h"
#include "cc/scheduler/internal/request_slots.h"
#include "cc/scheduler/internal/steps_in_flight.h"
#include "cc/scheduler/internal/token_budget.h"
#include "cc/scheduler/policies/policies.h"
#include "cc/scheduler/resources/encoder_cache.h"

namespace pagemill::scheduler {
namespace {

kv_cache::KvCacheOptions CacheOptions(const SchedulerOptions& options) {
  kv_cache::KvCacheOptions made = options.kv_cache;
  if (made.max_step_tokens == 0) made.max_step_tokens = options.max_num_tokens;
  return made;
}

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<Scheduler>(new Scheduler(options));
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      cache_(std::make_unique<kv_cache::KvCacheManager>(CacheOptions(options))),
      admission_(std::make_unique<Admission>(options, *cache_)),
      encoder_cache_(std::make_unique<EncoderCache>(
          EncoderCache::Options{.max_encoder_tokens = options.max_encoder_tokens,
                                .encoder_cache_tokens = options.EncoderCacheTokens(),
                                .chunked_media_input = options.chunked_media_input})),
      policy_(*MakePolicy(options.policy, options.tenant_weights)),
      charges_(policy_->charges()),
      parking_(std::make_unique<internal::Parking>(internal::Parking::Options{
          .max_adapters = options.max_adapters,
          .max_encoder_waiters = static_cast<size_t>(options.max_num_seqs),
          .block_size = options.kv_cache.block_size})),
      slots_(std::make_unique<internal::RequestSlots>(options.max_num_seqs)),
      budget_(std::make_unique<internal::TokenBudget>(
          options_, request_check().max_request_tokens(), encoder_cache_.get())),
      drafts_(std::make_unique<internal::DraftAccounts>(
          options_, request_check().max_request_tokens(), cache_.get(), &counters_)),
      loads_(std::make_unique<internal::LoadCoordinator>(options_.kv_cache, kMostAbandonedTransfers,
                                                         cache_.get(), &counters_)),
      in_flight_(std::make_unique<internal::StepsInFlight>()),
      held_prefixes_(std::make_unique<kv_cache::HeldPrefixes>(cache_.get())) {}

Scheduler::~Scheduler() = default;

size_t Scheduler::num_steps_in_flight() const { return in_flight_->size(); }
size_t Scheduler::num_transfers_in_flight() const { return loads_->num_in_flight(); }
int32_t Scheduler::num_decoding() const {
  const int32_t stages = options_.pipeline_stages;
  return (static_cast<int32_t>(running_.size()) - budget_->num_partial() + stages - 1) / stages;
}
const RequestCheck& Scheduler::request_check() const { return admission_->request_check(); }
const kv_cache::EventLog* Scheduler::kv_events() { return cache_->events(); }
kv_cache::BlockAges* Scheduler::block_ages() { return cache_->block_ages(); }
QueueAdmission& Scheduler::queue_admission() { return admission_->queue(); }

Status Scheduler::Add(step::Request request, QueueAccount account) {
  const step::RequestId id = request.id;
  PAGEMILL_RETURN_IF_ERROR(admission_->Check(request, account));
  if (requests_.contains(id)) {
    return FailedPrecondition("request id " + std::to_string(id.value()) + " is in use");
  }
  auto state = std::make_unique<RequestState>(std::move(request));
  RequestState* added = state.get();
  requests_.emplace(id, std::move(state));
  added->arrival = num_arrivals_++;
  admission_->Enter(added, account);
  if (added->request->starts_held) {
    parking_->Add(added, ParkReason::kHeld);
  } else {
    Enqueue(added);
  }
  return OkStatus();
}

bool Scheduler::Abort(step::RequestId id, std::vector<RequestEvent>* events) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  events->emplace_back();
  Finish(found->second.get(), step::FinishReason::kAbort, &events->back());
  DropStopped();
  return true;
}

// Into the policy's queue, or, if it never started and those are paused, among the parked requests.
void Scheduler::Enqueue(RequestState* request) {
  request->TakePendingInput();
  if (pause_mode_ && *pause_mode_ != PauseMode::kKeep && !request->num_cached_tokens) {
    parking_->Add(request, ParkReason::kPaused);
    return;
  }
  request->status = RequestStatus::kWaiting;
  policy_->Insert(request);
}

// The request gives up its slot and what was planned for it; results of steps in flight will be
// dropped. Its blocks are the caller's to free or to keep: a step in flight may still write to
// them, but it runs before any step that is planned from now on, so they may be handed out at once.
void Scheduler::StopRunning(RequestState* request) {
  slots_->Release(*request);
  budget_->SetPrefillsPartly(request, false);
  parking_->Stop(request);
  encoder_cache_->Release(*request->request, &request->held_media, /*usable=*/true);
  request->num_scheduled_tokens = 0;
  request->num_computed_tokens = 0;
  request->num_samples_in_flight = 0;
  request->num_drafts_in_flight = 0;
  request->draft_token_ids.clear();
  request->kv_looked_up = false;
  // Half of the prompt's logprobs are of no use: the prompt runs again from its start.
  if (!request->prompt_logprobs_done) request->prompt_logprobs.clear();
  request->routed_experts.clear();
  request->pooled.clear();
}

// A request of any status parks, even parked already, and gives up its blocks (those of a load
// belong to the load): the prefix cache finds again what it had computed. `producer`: of
// kPrefixInFlight.
void Scheduler::Park(RequestState* request, ParkReason reason, RequestState* producer) {
  if (request->status == RequestStatus::kRunning) {
    StopRunning(request);
    running_changed_ = true;
  } else if (request->status == RequestStatus::kParked) {
    parking_->Leave(request);
  } else {
    policy_->Remove(request);
  }
  cache_->Free(&request->blocks);
  if (producer != nullptr) {
    parking_->AddBehind(producer, request);
  } else {
    parking_->Add(request, reason);
  }
}

void Scheduler::Unpark(RequestState* request) {
  parking_->Leave(request);
  Enqueue(request);
}

void Scheduler::UnparkAll(std::span<RequestState* const> requests) {
  for (RequestState* request : requests) Unpark(request);
}

void Scheduler::UnparkAll(ParkReason reason) {
  while (RequestState* request = parking_->front(reason)) Unpark(request);
}

RequestState* Scheduler::FindParked(step::RequestId id, ParkReason reason) const {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return nullptr;
  RequestState* request = found->second.get();
  const bool parked = request->status == RequestStatus::kParked && request->park_reason == reason;
  return parked ? request : nullptr;
}

// The state stays until DropStopped(), so that lists that name it stay valid.
void Scheduler::Finish(RequestState* request, step::FinishReason reason, RequestEvent* event) {
  event->id = request->id;
  event->finish_reason = reason;
  event->num_cached_tokens = request->num_cached_tokens.value_or(0);
  event->num_evicted_tokens = request->num_evicted_tokens;
  event->num_draft_steps = request->num_draft_steps;
  event->num_draft_tokens = request->num_verified_drafts;
  event->num_accepted_draft_tokens = request->num_accepted_drafts;
  if (reason != step::FinishReason::kAbort && reason != step::FinishReason::kError) {
    event->kv_transfer_params = loads_->RequestFinished(*request);
  }
  if (request->wants_routed_experts) TakeRoutedExperts(request, event);
  if (request->status == RequestStatus::kRunning) {
    // What it was to be encoded for may not have been.
    if (reason == step::FinishReason::kError) {
      encoder_cache_->Release(*request->request, &request->held_media, /*usable=*/false);
    }
    StopRunning(request);
    running_changed_ = true;
  } else {
    if (request->status == RequestStatus::kParked) {
      loads_->Detach(*request);
      parking_->Leave(request);
    } else {
      policy_->Remove(request);
    }
    parking_->Forget(*request);
  }
  policy_->Forget(*request);
  cache_->Free(&request->blocks);
  admission_->Leave(request);
  finished_.push_back(request);
  ++counters_.finished[static_cast<size_t>(reason)];
}

// Those of all tokens but the last of the output: it may have been computed too, as a draft.
void Scheduler::TakeRoutedExperts(RequestState* request, RequestEvent* event) const {
  const auto num_tokens = static_cast<size_t>(request->num_tokens() - request->generates);
  const size_t most = num_tokens * static_cast<size_t>(options_.routed_experts_per_token);
  event->routed_experts = std::move(request->routed_experts);
  if (event->routed_experts.size() > most) event->routed_experts.resize(most);
}

void Scheduler::DropStopped() {
  if (running_changed_) {
    // A request that runs no more gave up its slot.
    std::erase_if(running_, [this](const RequestState* r) { return !slots_->Holds(*r); });
    running_changed_ = false;
  }
  if (parking_->has_awake()) UnparkAll(parking_->TakeAwake());
  for (const RequestState* request : finished_) requests_.erase(request->id);
  finished_.clear();
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.num_running = static_cast<int64_t>(running_.size());
  stats.num_waiting = static_cast<int64_t>(requests_.size() - running_.size() - parking_->size());
  stats.num_started = admission_->num_started();
  for (size_t i = 0; i < kNumParkReasons; ++i) {
    stats.num_parked[i] = static_cast<int64_t>(parking_->size(static_cast<ParkReason>(i)));
  }
  stats.num_running_adapters = static_cast<int64_t>(parking_->num_running_adapters());
  stats.num_waiting_for_adapter = stats.num_parked[static_cast<size_t>(ParkReason::kAdapterSlot)];
  stats.kv_blocks_total = cache_->num_usable_blocks();
  stats.kv_blocks_used = cache_->num_usable_blocks() - cache_->num_free_blocks();
  stats.encoder_cache_tokens_total = encoder_cache_->max_tokens();
  stats.encoder_cache_tokens_used = encoder_cache_->num_used_tokens();
  stats.encoder_cache_queries = encoder_cache_->num_queries();
  stats.encoder_cache_hits = encoder_cache_->num_hits();
  return stats;
}

Status Scheduler::CheckRequest(const RequestState& request) const {
  const std::string name = "request " + std::to_string(request.id.value());
  if (request.num_computed_tokens < 0 ||
      request.num_computed_tokens > request.num_scheduled_tokens ||
      request.num_scheduled_tokens > request.num_tokens() + request.num_tokens_in_flight()) {
    return Internal(name + ": token counts out of order");
  }
  const int32_t in_flight =
      request.num_scheduled_tokens - request.num_computed_tokens + request.num_tokens_in_flight();
  if (in_flight_->empty() && in_flight != 0) {
    return Internal(name + ": tokens in flight without a step");
  }
  if (request.num_drafts_in_flight < 0 ||
      (request.num_samples_in_flight == 0 && request.num_drafts_in_flight > 0)) {
    return Internal(name + ": drafts in flight without a sample");
  }
  if (request.announced_block < 0 && !request.prefix_waiters.empty()) {
    return Internal(name + ": others wait for blocks that it does not announce");
  }
  if (request.status != RequestStatus::kRunning) {
    if (request.num_scheduled_tokens == 0 && request.blocks.empty()) return OkStatus();
    return Internal(name + ": does not run, but holds blocks or tokens");
  }
  if (!slots_->Holds(request)) return Internal(name + ": not in its slot");
  if (!kv_cache::KvCacheManager::Covers(request.blocks, request.num_scheduled_tokens)) {
    return Internal(name + ": holds no blocks for all of " +
                    std::to_string(request.num_scheduled_tokens) + " tokens");
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  std::vector<const kv_cache::RequestBlocks*> holders;
  std::vector<EncoderCache::Holder> media_holders;
  size_t num_running = 0, num_parked = 0;
  size_t num_with_deadline = 0;
  int32_t num_partial = 0, num_long = 0;
  int64_t num_started = 0;
  for (const auto& [id, request] : requests_) {
    PAGEMILL_RETURN_IF_ERROR(CheckRequest(*request));
    holders.push_back(&request->blocks);
    media_holders.push_back({request->request.get(), &request->held_media});
    num_running += request->status == RequestStatus::kRunning;
    num_parked += request->status == RequestStatus::kParked;
    num_with_deadline += request->next_deadline_us.has_value();
    num_started += request->num_cached_tokens.has_value();
    num_partial += request->prefills_partly;
    num_long += request->prefills_partly && budget_->IsLong(*request);
  }
  if (num_running != running_.size() || num_running + slots_->num_free() != slots_->size() ||
      !finished_.empty()) {
    return Internal("scheduler: running requests and slots disagree");
  }
  for (size_t i = 1; i < running_.size(); ++i) {
    if (policy_->RunsBefore(*running_[i], *running_[i - 1])) {
      return Internal("scheduler: running requests are not in the policy's order");
    }
  }
  if (num_parked != parking_->size()) return Internal("scheduler: parked requests are miscounted");
  if (num_partial != budget_->num_partial() || num_long != budget_->num_long()) {
    return Internal("scheduler: partial prefills are miscounted");
  }
  PAGEMILL_RETURN_IF_ERROR(admission_->CheckIntegrity(num_with_deadline, num_started));
  PAGEMILL_RETURN_IF_ERROR(parking_->CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(encoder_cache_->CheckIntegrity(media_holders));
  PAGEMILL_RETURN_IF_ERROR(policy_->CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(loads_->CheckIntegrity(*parking_, &holders));
  held_prefixes_->AppendHolders(&holders);
  return cache_->CheckIntegrity(holders);
}

}  // namespace pagemill::scheduler
