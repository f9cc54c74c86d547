// Scheduler::Update() and what it is made of.
#include <algorithm>
#include <string>
#include <utility>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/admission.h"
#include "cc/scheduler/internal/draft_accounts.h"
#include "cc/scheduler/internal/load_coordinator.h"
#include "cc/scheduler/internal/parking.h"
#include "cc/scheduler/internal/request_slots.h"
#include "cc/scheduler/internal/result_check.h"
#include "cc/scheduler/internal/steps_in_flight.h"
#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/resources/encoder_cache.h"
#include "cc/scheduler/scheduler.h"
#include "cc/scheduler/stop_check.h"

namespace pagemill::scheduler {

using internal::PlannedEntry;
using internal::PlannedStep;
using step::FinishReason;

namespace {

Status NoStepInFlight() {
  return FailedPrecondition("no step is in flight: each plan that is not empty has one result");
}

// Takes the newest token of a request that detects repetition.
bool EndsByRepetition(RequestState* request) {
  const bool repeats = request->repetition->Add(request->output_token_ids);
  const auto num_outputs = static_cast<int32_t>(request->output_token_ids.size());
  return repeats && num_outputs >= request->request->sampling.min_tokens;
}

}  // namespace

Status Scheduler::FailStep(const Status& why, std::vector<RequestEvent>* events) {
  const std::optional<PlannedStep> step = in_flight_->TakeOldest();
  if (!step) return NoStepInFlight();
  FailEntries(*step, why, events);
  return OkStatus();
}

void Scheduler::FailEntries(const PlannedStep& step, const Status& why,
                            std::vector<RequestEvent>* events) {
  for (const PlannedEntry& entry : step.entries) {
    RequestState* request = slots_->Find(entry.index, entry.generation);
    if (request == nullptr) continue;
    RequestEvent& event = events->emplace_back();
    event.error = why;
    Finish(request, FinishReason::kError, &event);
  }
  DropStopped();
}

Status Scheduler::Update(step::StepResult&& result, std::vector<RequestEvent>* events) {
  std::optional<PlannedStep> step = in_flight_->TakeOldest();
  if (!step) return NoStepInFlight();
  if (result.step_id != step->step_id || result.results.size() != step->entries.size()) {
    const Status why = Internal("the runner answered step " + std::to_string(step->step_id) + " (" +
                                std::to_string(step->entries.size()) + " requests) with step " +
                                std::to_string(result.step_id) + " (" +
                                std::to_string(result.results.size()) + " requests)");
    FailEntries(*step, why, events);
    return OkStatus();
  }
  for (size_t i = 0; i < step->entries.size(); ++i) {
    const PlannedEntry& entry = step->entries[i];
    RequestState* request = slots_->Find(entry.index, entry.generation);
    if (request == nullptr) continue;  // aborted or preempted since
    RequestEvent& event = events->emplace_back();
    Apply(request, entry, &result.results[i], &event);
    const bool news = event.finish_reason || event.prompt_logprobs || !event.new_token_ids.empty();
    if (!news) events->pop_back();
  }
  if (loads_->has_connector()) loads_->PlanStores();
  DropStopped();
  in_flight_->Recycle(std::move(*step));
  return OkStatus();
}

void Scheduler::Apply(RequestState* request, const PlannedEntry& entry, step::RequestResult* result,
                      RequestEvent* event) {
  event->id = request->id;
  event->num_cached_tokens = *request->num_cached_tokens;
  Status problem = internal::CheckResult(*request, entry, *result, options_);
  if (!problem.ok()) {
    event->error = std::move(problem);
    Finish(request, FinishReason::kError, event);
    return;
  }
  request->num_computed_tokens += entry.num_tokens;
  if (request->wants_routed_experts) {
    request->routed_experts.insert(request->routed_experts.end(), result->routed_experts.begin(),
                                   result->routed_experts.end());
  }
  if (request->pooled.empty() || !options_.token_rows) {  // else each step has some of its rows
    request->pooled = std::move(result->pooled);
  } else {
    request->pooled.insert(request->pooled.end(), result->pooled.begin(), result->pooled.end());
  }
  std::optional<Stop> stop;
  if (entry.sample) stop = AppendTokens(request, entry, result, event);
  const int32_t num_committed = request->blocks.num_committed_tokens();
  cache_->Commit(*request->request, request->tokens(), request->num_computed_tokens,
                 &request->blocks);
  if (loads_->has_connector()) loads_->OfferStores(*request, num_committed);
  parking_->Advance(request);
  if (!request->held_media.empty()) {
    encoder_cache_->Advance(*request->request, request->num_computed_tokens, &request->held_media);
  }
  if (!request->generates || entry.prompt_logprobs) FinishPrompt(request, entry, result, event);
  if (stop) {
    FinishTurn(request, *stop, event);
  } else if (request->generates && !entry.sample &&
             request->num_computed_tokens == request->num_tokens()) {
    // Nothing is sampled behind the known tokens, because more is to come, or came meanwhile.
    Park(request, ParkReason::kAwaitingInput);
    if (!request->input_open || !request->pending_input.token_ids.empty()) Unpark(request);
  }
}

// What the computed part of the prompt brings besides tokens.
void Scheduler::FinishPrompt(RequestState* request, const PlannedEntry& entry,
                             step::RequestResult* result, RequestEvent* event) {
  const bool whole = request->num_computed_tokens >= request->prompt_size;
  if (entry.prompt_logprobs) {
    std::move(result->prompt_logprobs.begin(), result->prompt_logprobs.end(),
              std::back_inserter(request->prompt_logprobs));
    if (whole) {
      event->prompt_logprobs = std::move(request->prompt_logprobs);
      request->prompt_logprobs_done = true;
    }
  }
  if (request->generates || !whole) return;
  if (request->pooling) event->pooled = std::move(request->pooled);
  Finish(request, request->pooling ? FinishReason::kStop : FinishReason::kLength, event);
}

// Accepted drafts and the sampled token become output, up to one with which the request ends.
std::optional<Stop> Scheduler::AppendTokens(RequestState* request, const PlannedEntry& entry,
                                            step::RequestResult* result, RequestEvent* event) {
  --request->num_samples_in_flight;
  event->first_tokens = request->output_token_ids.empty();
  event->new_token_ids = std::move(result->sampled_token_ids);
  if (!result->logprobs.empty()) event->logprobs = std::move(result->logprobs);
  const size_t num_accepted = event->new_token_ids.size() - 1;
  std::optional<Stop> stop;
  size_t kept = 0;
  while (kept < event->new_token_ids.size() && !stop) {
    const int32_t token = event->new_token_ids[kept++];
    request->output_token_ids.push_back(token);
    ++counters_.generation_tokens;
    if (charges_) policy_->Charge(*request, 1);
    stop = CheckStop(request->request->sampling, token,
                     static_cast<int32_t>(request->output_token_ids.size()), request->num_tokens(),
                     request_check().max_request_tokens());
    if (request->repetition != nullptr && EndsByRepetition(request) && !stop) {
      stop = Stop{FinishReason::kRepetition, std::nullopt};
    }
  }
  if (kept < event->new_token_ids.size()) {
    // Tokens accepted behind the one that stops are not part of the output.
    event->new_token_ids.Truncate(kept);
    if (event->logprobs.size() > kept) event->logprobs.resize(kept);
  }
  drafts_->Settle(request, {.num_planned = entry.num_drafts,
                            .num_verified = entry.num_drafts - result->num_missing_drafts,
                            .num_accepted = static_cast<int32_t>(std::min(kept, num_accepted))});
  drafts_->Propose(request, std::move(result->draft_token_ids));
  return stop;
}

// The request ends, or only its turn.
void Scheduler::FinishTurn(RequestState* request, const Stop& stop, RequestEvent* event) {
  event->stop_token_id = stop.stop_token_id;
  // Another turn takes a token of input and one of output.
  const bool full = request->num_tokens() + 2 > request_check().max_request_tokens();
  if (!request->session_open || full) {
    Finish(request, stop.reason, event);
    return;
  }
  event->turn_finished = stop.reason;
  if (request->repetition != nullptr) request->repetition->Restart();
  Park(request, ParkReason::kAwaitingInput);
  request->GrowPrompt({.token_ids = std::exchange(request->output_token_ids, {})});
  request->input_open = true;
  request->turn_has_input = false;
}

}  // namespace pagemill::scheduler
