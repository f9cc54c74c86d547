// Scheduler::Update() and what it is made of.
#include <algorithm>
#include <string>
#include <utility>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

using step::FinishReason;

Scheduler::InFlightStep Scheduler::PopOldestStep() {
  PAGEMILL_CHECK(!in_flight_.empty());
  InFlightStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  return step;
}

void Scheduler::FailStep(const Status& why, std::vector<RequestEvent>* events) {
  FailEntries(PopOldestStep(), why, events);
}

void Scheduler::FailEntries(const InFlightStep& step, const Status& why,
                            std::vector<RequestEvent>* events) {
  for (const InFlightEntry& entry : step.entries) {
    const Slot& slot = slots_[entry.index.value()];
    if (slot.generation != entry.generation) continue;
    RequestEvent& event = events->emplace_back();
    event.error = why;
    Finish(slot.holder, FinishReason::kError, &event);
  }
  DropStopped();
}

void Scheduler::Update(step::StepResult&& result, std::vector<RequestEvent>* events) {
  InFlightStep step = PopOldestStep();
  if (result.step_id != step.step_id || result.results.size() != step.entries.size()) {
    const Status why = Internal("the runner answered step " + std::to_string(step.step_id) + " (" +
                                std::to_string(step.entries.size()) + " requests) with step " +
                                std::to_string(result.step_id) + " (" +
                                std::to_string(result.results.size()) + " requests)");
    FailEntries(step, why, events);
    return;
  }
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const InFlightEntry& entry = step.entries[i];
    const Slot& slot = slots_[entry.index.value()];
    // Aborted or preempted since: no request waits for this answer.
    if (slot.generation != entry.generation) continue;
    RequestEvent& event = events->emplace_back();
    Apply(slot.holder, entry, &result.results[i], &event);
    const bool news = event.finish_reason || event.prompt_logprobs || !event.new_token_ids.empty();
    if (!news) events->pop_back();
  }
  if (connector_ != nullptr) PlanStores();
  DropStopped();
  spare_entries_ = std::move(step.entries);
}

// Runners are written by others: what they answer is checked before it is believed.
Status Scheduler::CheckResult(const RequestState& request, const InFlightEntry& entry,
                              const step::RequestResult& result) const {
  if (!result.failure.ok()) return result.failure;
  if (result.index != entry.index) return Internal("the runner answered for another request");
  if (result.sampled_token_ids.empty() == entry.sample) {
    return Internal(entry.sample ? "the runner sampled no token" : "the runner sampled unasked");
  }
  if (entry.sample) PAGEMILL_RETURN_IF_ERROR(CheckSampled(request, entry, result));
  if (request.wants_logprobs && result.logprobs.size() != result.sampled_token_ids.size()) {
    return Internal("the runner gave logprobs for " + std::to_string(result.logprobs.size()) +
                    " of " + std::to_string(result.sampled_token_ids.size()) + " tokens");
  }
  if (entry.prompt_logprobs) {
    const int32_t last =
        std::min(request.num_computed_tokens + entry.num_tokens, request.prompt_size - 1);
    if (static_cast<int32_t>(result.prompt_logprobs.size()) != last - request.num_computed_tokens) {
      return Internal("the runner gave " + std::to_string(result.prompt_logprobs.size()) +
                      " prompt logprobs instead of " +
                      std::to_string(last - request.num_computed_tokens));
    }
  }
  const bool whole = request.num_computed_tokens + entry.num_tokens >= request.prompt_size;
  if (request.pooling && whole && result.pooled.empty()) {
    return Internal("the runner gave no pooled output");
  }
  return OkStatus();
}

void Scheduler::Apply(RequestState* request, const InFlightEntry& entry,
                      step::RequestResult* result, RequestEvent* event) {
  event->id = request->request->id;
  event->num_cached_tokens = *request->num_cached_tokens;
  Status problem = CheckResult(*request, entry, *result);
  if (!problem.ok()) {
    event->error = std::move(problem);
    Finish(request, FinishReason::kError, event);
    return;
  }
  request->num_computed_tokens += entry.num_tokens;
  std::optional<Stop> stop;
  if (entry.sample) stop = AppendTokens(request, entry, result, event);
  const int32_t num_committed = request->blocks.num_committed_tokens();
  cache_.Commit(*request->request, request->tokens(), request->num_computed_tokens,
                &request->blocks);
  if (connector_ != nullptr) OfferStores(*request, num_committed);
  AdvancePrefix(request);
  if (!request->held_media.empty()) {
    encoder_cache_.Advance(*request->request, request->num_computed_tokens, &request->held_media);
  }
  FinishPrompt(request, entry, result, event);
  if (stop) {
    FinishTurn(request, *stop, event);
  } else if (request->generates && !entry.sample &&
             request->num_computed_tokens == request->num_tokens()) {
    FinishInput(request);
  }
}

// What the computed part of the prompt brings besides tokens.
void Scheduler::FinishPrompt(RequestState* request, const InFlightEntry& entry,
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
  if (request->pooling) event->pooled = std::move(result->pooled);
  Finish(request, request->pooling ? FinishReason::kStop : FinishReason::kLength, event);
}

// Accepted drafts and the sampled token become output, up to one with which the request ends.
std::optional<Stop> Scheduler::AppendTokens(RequestState* request, const InFlightEntry& entry,
                                            step::RequestResult* result, RequestEvent* event) {
  --request->num_samples_in_flight;
  event->first_tokens = request->output_token_ids.empty();
  event->new_token_ids = std::move(result->sampled_token_ids);
  event->logprobs = std::move(result->logprobs);
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
                     admission_.max_request_tokens());
  }
  // Tokens accepted behind the one that stops are not part of the output.
  event->new_token_ids.resize(kept);
  if (event->logprobs.size() > kept) event->logprobs.resize(kept);
  SettleDrafts(request, entry, entry.num_drafts - result->num_missing_drafts,
               static_cast<int32_t>(std::min(kept, num_accepted)));
  ProposeDrafts(request, std::move(result->draft_token_ids));
  return stop;
}

}  // namespace pagemill::scheduler
