#include "cc/scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/scheduler/policies/policies.h"

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
      cache_(CacheOptions(options)),
      admission_(options, cache_),
      queue_(options),
      adapters_(options.max_adapters),
      encoder_cache_({.max_encoder_tokens = options.max_encoder_tokens,
                      .encoder_cache_tokens = options.EncoderCacheTokens(),
                      .chunked_media_input = options.chunked_media_input}),
      policy_(*MakePolicy(options.policy, options.tenant_weights)),
      charges_(policy_->charges()),
      slots_(options.max_num_seqs) {
  for (int32_t i = options.max_num_seqs - 1; i >= 0; --i) {
    free_slots_.push_back(step::RequestIndex(i));
  }
}

Status Scheduler::Add(step::Request request) {
  PAGEMILL_RETURN_IF_ERROR(admission_.Check(request));
  PAGEMILL_RETURN_IF_ERROR(queue_.Check(request, std::nullopt));
  const step::RequestId id = request.id;
  auto state = std::make_unique<RequestState>(std::move(request));
  state->arrival = num_arrivals_;
  RequestState* added = state.get();
  if (!requests_.emplace(id, std::move(state)).second) {
    return FailedPrecondition("request id " + std::to_string(id.value()) + " is in use");
  }
  ++num_arrivals_;
  deadlines_.Insert(added);
  added->ticket = queue_.Enter(*added->request);
  if (added->request->starts_held) {
    parked_.Add(added, ParkReason::kHeld);
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

void Scheduler::ReleaseSlot(RequestState* request) {
  Slot& slot = slots_[request->index.value()];
  slot.holder = nullptr;
  ++slot.generation;
  free_slots_.push_back(request->index);
  released_.push_back(request->index);
}

// The request gives up its slot and what was planned for it; results of steps in flight will be
// dropped. Its blocks are the caller's to free or to keep: a step in flight may still write to
// them, but it runs before any step that is planned from now on, so they may be handed out at once.
void Scheduler::StopRunning(RequestState* request) {
  ReleaseSlot(request);
  SetPrefillsPartly(request, false);
  adapters_.Stop(request->request->adapter);
  encoder_cache_.Release(*request->request, &request->held_media, /*usable=*/true);
  prefixes_in_flight_.Withdraw(request, &awake_);
  request->num_scheduled_tokens = 0;
  request->num_computed_tokens = 0;
  request->num_samples_in_flight = 0;
  request->num_drafts_in_flight = 0;
  request->draft_token_ids.clear();
  request->kv_looked_up = false;
  // Half of the prompt's logprobs are of no use: the prompt runs again from its start.
  if (!request->prompt_logprobs_done) request->prompt_logprobs.clear();
}

// The state stays until DropStopped(), so that lists that name it stay valid.
void Scheduler::Finish(RequestState* request, step::FinishReason reason, RequestEvent* event) {
  event->id = request->request->id;
  event->finish_reason = reason;
  event->num_cached_tokens = request->num_cached_tokens.value_or(0);
  if (request->status == RequestStatus::kRunning) {
    // What it was to be encoded for may not have been.
    if (reason == step::FinishReason::kError) {
      encoder_cache_.Release(*request->request, &request->held_media, /*usable=*/false);
    }
    StopRunning(request);
    running_changed_ = true;
  } else if (request->status == RequestStatus::kParked) {
    DetachLoad(*request);
    LeaveParked(request);
    adapters_.Forget(request->request->adapter);
  } else {
    policy_->Remove(request);
    adapters_.Forget(request->request->adapter);
  }
  policy_->Forget(*request);
  deadlines_.Remove(request);
  cache_.Free(&request->blocks);
  queue_.Leave(request->ticket);
  if (request->num_cached_tokens) --num_started_;
  if (request->generates && request->num_cached_tokens) {
    queue_.estimator().ObserveOutput(static_cast<int64_t>(request->output_token_ids.size()));
  }
  finished_.push_back(request);
  ++counters_.finished[static_cast<size_t>(reason)];
}

void Scheduler::DropStopped() {
  if (running_changed_) {
    // Who runs no more gave up its slot.
    std::erase_if(running_, [this](const RequestState* request) {
      return slots_[request->index.value()].holder != request;
    });
    running_changed_ = false;
  }
  UnparkAwake();
  for (const RequestState* request : finished_) requests_.erase(request->request->id);
  finished_.clear();
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.num_running = static_cast<int64_t>(running_.size());
  stats.num_waiting = static_cast<int64_t>(requests_.size() - running_.size() - parked_.size());
  stats.num_started = num_started_;
  for (size_t i = 0; i < kNumParkReasons; ++i) {
    stats.num_parked[i] = static_cast<int64_t>(parked_.size(static_cast<ParkReason>(i)));
  }
  stats.kv_blocks_total = cache_.num_usable_blocks();
  stats.kv_blocks_used = cache_.num_usable_blocks() - cache_.num_free_blocks();
  return stats;
}

Status Scheduler::CheckRequest(const RequestState& request) const {
  const std::string name = "request " + std::to_string(request.request->id.value());
  if (request.num_computed_tokens < 0 ||
      request.num_computed_tokens > request.num_scheduled_tokens ||
      request.num_scheduled_tokens > request.num_tokens() + request.num_tokens_in_flight()) {
    return Internal(name + ": token counts out of order");
  }
  const int32_t in_flight =
      request.num_scheduled_tokens - request.num_computed_tokens + request.num_tokens_in_flight();
  if (in_flight_.empty() && in_flight != 0) {
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
  if (slots_[request.index.value()].holder != &request) return Internal(name + ": not in its slot");
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
    num_long += request->prefills_partly && IsLong(*request);
  }
  const auto taken = static_cast<size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.holder != nullptr; }));
  if (num_running != running_.size() || taken != running_.size() ||
      taken + free_slots_.size() != slots_.size() || !finished_.empty()) {
    return Internal("scheduler: running requests and slots disagree");
  }
  for (size_t i = 1; i < running_.size(); ++i) {
    if (policy_->RunsBefore(*running_[i], *running_[i - 1])) {
      return Internal("scheduler: running requests are not in the policy's order");
    }
  }
  if (num_started != num_started_) return Internal("scheduler: started requests are miscounted");
  if (num_parked != parked_.size()) return Internal("scheduler: parked requests are miscounted");
  if (num_partial != num_partial_prefills_ || num_long != num_long_partial_prefills_) {
    return Internal("scheduler: partial prefills are miscounted");
  }
  if (num_with_deadline != deadlines_.size()) {
    return Internal("scheduler: deadlines are miscounted");
  }
  PAGEMILL_RETURN_IF_ERROR(parked_.CheckIntegrity());
  if (parked_.size(ParkReason::kAdapterSlot) != adapters_.num_waiting()) {
    return Internal("scheduler: requests that wait for adapters are miscounted");
  }
  PAGEMILL_RETURN_IF_ERROR(adapters_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(encoder_cache_.CheckIntegrity(media_holders));
  PAGEMILL_RETURN_IF_ERROR(prefixes_in_flight_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(policy_->CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(queue_.CheckIntegrity());
  PAGEMILL_RETURN_IF_ERROR(CheckTransfers(&holders));
  held_prefixes_.AppendHolders(&holders);
  return cache_.CheckIntegrity(holders);
}

}  // namespace pagemill::scheduler
