// Calls about requests at hand: more input, release, deadlines, pause and resume, KV transfers,
// forgetting the prefix cache.
#include <algorithm>
#include <string>
#include <utility>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/admission.h"
#include "cc/scheduler/internal/load_coordinator.h"
#include "cc/scheduler/internal/parking.h"
#include "cc/scheduler/internal/steps_in_flight.h"
#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/resources/encoder_cache.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {
namespace {

// Behind the tokens of `chunk`.
void Append(InputChunk more, InputChunk* chunk) {
  const auto first = static_cast<int32_t>(chunk->token_ids.size());
  for (step::MediaItem& item : more.media) {
    item.first_token += first;
    chunk->media.push_back(std::move(item));
  }
  chunk->token_ids.insert(chunk->token_ids.end(), more.token_ids.begin(), more.token_ids.end());
}

}  // namespace

Status Scheduler::Extend(step::RequestId id, InputChunk chunk) {
  const std::string name = "request " + std::to_string(id.value());
  const auto found = requests_.find(id);
  if (found == requests_.end()) return NotFound(name + " does not exist, or ended");
  RequestState* request = found->second.get();
  if (!request->request->streaming_input) {
    return FailedPrecondition(name + " was not submitted with streaming_input");
  }
  if (!request->input_open) {
    return FailedPrecondition(request->session_open
                                  ? name + " is generating; extend it when its turn is over"
                                  : "the input of " + name + " is complete");
  }
  if (chunk.token_ids.empty() && (chunk.part == InputPart::kMore || !request->turn_has_input)) {
    return InvalidArgument("token_ids is empty; a part of the input has at least one token");
  }
  const auto num_pending = static_cast<int32_t>(request->pending_input.token_ids.size());
  PAGEMILL_RETURN_IF_ERROR(admission_->request_check().CheckChunk(
      *request->request, {chunk.token_ids, chunk.media, request->prompt_size + num_pending}));

  request->input_open = chunk.part == InputPart::kMore;
  request->session_open = chunk.part != InputPart::kLast;
  request->turn_has_input = true;
  if (request->num_cached_tokens) counters_.prompt_tokens += chunk.token_ids.size();
  if (!request->blocks.empty()) {
    Append(std::move(chunk), &request->pending_input);
    return OkStatus();
  }
  request->GrowPrompt(std::move(chunk));
  if (FindParked(id, ParkReason::kAwaitingInput) != nullptr) Unpark(request);
  return OkStatus();
}

bool Scheduler::Release(step::RequestId id) {
  RequestState* request = FindParked(id, ParkReason::kHeld);
  if (request == nullptr) return false;
  Unpark(request);
  return true;
}

void Scheduler::Pause(PauseMode mode, std::vector<RequestEvent>* events) {
  pause_mode_ = mode;
  if (mode == PauseMode::kKeep) return;
  if (mode == PauseMode::kAbort) {
    std::vector<RequestState*> all;
    for (const auto& [id, request] : requests_) all.push_back(request.get());
    std::sort(all.begin(), all.end(),
              [](const RequestState* a, const RequestState* b) { return a->arrival < b->arrival; });
    for (RequestState* request : all) {
      Finish(request, step::FinishReason::kAbort, &events->emplace_back());
    }
    DropStopped();
  }
  // Requests that never started leave the queue; a preempted one is among those that finish.
  std::vector<RequestState*> waiting;
  while (RequestState* request = policy_->Next()) {
    policy_->Remove(request);
    waiting.push_back(request);
  }
  for (RequestState* request : waiting) Enqueue(request);
}

void Scheduler::Resume() {
  pause_mode_.reset();
  UnparkAll(ParkReason::kPaused);
}

std::optional<int64_t> Scheduler::next_deadline_us() const {
  return admission_->next_deadline_us();
}

void Scheduler::Expire(int64_t now_us, std::vector<RequestEvent>* events) {
  while (RequestState* request = admission_->Expired(now_us)) {
    const step::Request& r = *request->request;
    const bool ended = r.deadline_us && *r.deadline_us <= now_us;
    RequestEvent& event = events->emplace_back();
    event.error = {StatusCode::kDeadlineExceeded,
                   ended ? "the request did not end by its deadline"
                         : "the request did not start by its start deadline"};
    Finish(request, step::FinishReason::kError, &event);
  }
  DropStopped();
}

bool Scheduler::ResetPrefixCache(bool preempt_running, bool reset_connector) {
  if (preempt_running) {
    while (!running_.empty()) Preempt(running_.size() - 1);
  }
  if (!cache_->CanReset()) return false;
  if (reset_connector && !loads_->Reset()) return false;
  return cache_->Reset();
}

void Scheduler::ResetEncoderCache() { encoder_cache_->EvictUnreferenced(); }

Status Scheduler::SetConnector(kv_cache::KvConnector* connector) {
  return loads_->SetConnector(connector);
}

void Scheduler::TakeTransfers(std::vector<kv_cache::KvTransfer>* transfers) {
  loads_->Take(in_flight_->oldest_step(), transfers);
}

void Scheduler::FinishTransfers(std::span<const kv_cache::KvTransferResult> results) {
  loads_->Finish(results);
  UnparkAll(loads_->TakeAwake());
  if (!results.empty()) UnparkAll(ParkReason::kKvLookup);
}

void Scheduler::AbandonTransfer(kv_cache::TransferId id) {
  if (!loads_->Abandon(id)) return;
  UnparkAll(loads_->TakeAwake());
  UnparkAll(ParkReason::kKvLookup);
}

}  // namespace pagemill::scheduler
