// Scheduler::Schedule() and what it is made of.
#include <algorithm>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

void Scheduler::Schedule(step::StepPlan* plan) {
  plan->released.clear();
  plan->total_num_tokens = 0;
  num_entries_ = 0;
  in_flight_.emplace_back();
  in_flight_.back().entries = std::move(spare_entries_);
  in_flight_.back().entries.clear();

  Budget budget{options_.max_num_tokens, options_.max_num_logits_rows};
  ScheduleRunning(&budget, plan);
  ScheduleWaiting(&budget, plan);

  plan->scheduled.resize(num_entries_);
  if (plan->empty()) {
    // Slots released meanwhile are told with the next plan that runs.
    spare_entries_ = std::move(in_flight_.back().entries);
    in_flight_.pop_back();
    return;
  }
  plan->step_id = ++num_plans_;
  plan->total_num_tokens = options_.max_num_tokens - budget.tokens;
  plan->released.swap(released_);
  in_flight_.back().step_id = plan->step_id;
}

void Scheduler::ScheduleRunning(Budget* budget, step::StepPlan* plan) {
  for (size_t i = 0; i < running_.size() && budget->tokens > 0; ++i) {
    RequestState* request = running_[i];
    const int32_t n = NumTokensToRun(*request, *budget);
    if (n == 0) continue;
    // Without room the request itself was preempted, and with it all that come after it.
    if (!MakeRoom(i, request->num_scheduled_tokens + n)) return;
    Place(request, n, nullptr, budget, NextEntry(plan));
  }
}

void Scheduler::ScheduleWaiting(Budget* budget, step::StepPlan* plan) {
  if (free_slots_.empty()) return;
  int32_t promised = -1;  // counted when the first request comes that might start
  while (budget->tokens > 0 && !free_slots_.empty()) {
    RequestState* request = policy_->Next();
    if (request == nullptr) return;
    if (promised < 0) promised = NumPromisedBlocks();

    kv_cache::PrefixMatch match;
    if (ReadsPrefixCache(*request)) {
      match = cache_.FindPrefix(*request->request, request->tokens(), &request->blocks);
    }
    request->num_scheduled_tokens = match.num_tokens;
    const int32_t n = NumTokensToRun(*request, *budget);
    if (n == 0 || !cache_.CanAllocate(request->blocks, &match, request->num_tokens(), promised)) {
      request->num_scheduled_tokens = 0;
      return;
    }
    step::ScheduledRequest* entry = NextEntry(plan);
    Start(request, match, entry);
    Place(request, n, &match, budget, entry);
    promised +=
        cache_.NumBlocks(request->num_tokens()) - cache_.NumBlocks(request->num_scheduled_tokens);
  }
}

// Blocks that running requests still need for the tokens they are known to have.
int32_t Scheduler::NumPromisedBlocks() const {
  int32_t promised = 0;
  for (const RequestState* request : running_) {
    if (request->num_scheduled_tokens == request->num_tokens()) continue;
    promised +=
        cache_.NumBlocks(request->num_tokens()) - cache_.NumBlocks(request->num_scheduled_tokens);
  }
  return promised;
}

// A pooled output or the logprobs of a prompt need every token to be run.
bool Scheduler::ReadsPrefixCache(const RequestState& request) const {
  return !request.request->skip_reading_prefix_cache && !request.pooling &&
         request.prompt_logprobs_done;
}

// How many tokens the request may run now; 0 where it cannot.
int32_t Scheduler::NumTokensToRun(const RequestState& request, const Budget& budget) const {
  const int32_t left = request.num_tokens() - request.num_scheduled_tokens;
  int32_t n = std::min(left, budget.tokens);
  int32_t least = 1;
  if (options_.chunked_prefill) {
    if (options_.long_prefill_token_threshold > 0) {
      n = std::min(n, options_.long_prefill_token_threshold);
    }
  } else {
    least = std::max(least, request.prompt_size - request.num_scheduled_tokens);
  }
  if (!request.prompt_logprobs_done) {
    n = std::min(n, budget.rows);
  } else if (n == left && budget.rows == 0 && request.generates) {
    --n;  // all but the token after which a row would be needed
  }
  return n < least ? 0 : n;
}

// Makes it possible to extend running_[position] to `num_tokens`, by preemption if need be. False
// where that request itself had to give way.
bool Scheduler::MakeRoom(size_t position, int32_t num_tokens) {
  const RequestState* request = running_[position];
  if (cache_.Covers(request->blocks, num_tokens)) return true;
  while (!cache_.CanAllocate(request->blocks, nullptr, num_tokens)) {
    const auto candidates = std::span<RequestState* const>(running_).subspan(position);
    const size_t victim = position + policy_->Victim(candidates);
    Preempt(victim);
    if (victim == position) return false;
  }
  return true;
}

void Scheduler::Preempt(size_t position) {
  RequestState* request = running_[position];
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(position));
  cache_.Free(&request->blocks);
  ReleaseSlot(request);
  request->status = RequestStatus::kWaiting;
  request->num_scheduled_tokens = 0;
  request->num_computed_tokens = 0;
  // Half of the prompt's logprobs are of no use: the prompt runs again from its start.
  if (!request->prompt_logprobs_done) request->prompt_logprobs.clear();
  policy_->Insert(request);
  ++counters_.num_preemptions;
}

void Scheduler::Start(RequestState* request, const kv_cache::PrefixMatch& match,
                      step::ScheduledRequest* entry) {
  policy_->Remove(request);
  request->status = RequestStatus::kRunning;
  request->index = free_slots_.back();
  free_slots_.pop_back();
  slots_[request->index.value()].holder = request;
  request->num_computed_tokens = match.num_tokens;
  running_.push_back(request);
  entry->start = request->request;
  entry->resumed_output_token_ids = request->output_token_ids;
  if (request->num_cached_tokens) return;  // a resumed request was counted before
  request->num_cached_tokens = match.num_tokens;
  counters_.prompt_tokens += static_cast<uint64_t>(request->prompt_size);
  if (ReadsPrefixCache(*request) && options_.kv_cache.enable_prefix_caching) {
    counters_.prefix_cache_query_tokens += static_cast<uint64_t>(request->prompt_size);
    counters_.prefix_cache_hit_tokens += static_cast<uint64_t>(match.num_tokens);
  }
}

// Gives the request `num_tokens` tokens of this step, and the blocks for them.
void Scheduler::Place(RequestState* request, int32_t num_tokens, const kv_cache::PrefixMatch* match,
                      Budget* budget, step::ScheduledRequest* entry) {
  const int32_t begin = request->num_scheduled_tokens;
  const int32_t end = begin + num_tokens;
  cache_.Allocate(end, match, &request->blocks, &entry->new_block_ids);
  entry->index = request->index;
  entry->num_computed_tokens = begin;
  request->tokens().CopyTo(begin, end, &entry->token_ids);
  entry->sample = end == request->num_tokens() && request->generates;
  entry->prompt_logprobs = !request->prompt_logprobs_done;
  request->num_scheduled_tokens = end;

  budget->tokens -= num_tokens;
  budget->rows -= entry->prompt_logprobs ? num_tokens : (entry->sample ? 1 : 0);
  in_flight_.back().entries.push_back({request->index, slots_[request->index.value()].generation,
                                       num_tokens, entry->sample, entry->prompt_logprobs});
}

// The plan's next entry, emptied; memory of earlier plans is used again.
step::ScheduledRequest* Scheduler::NextEntry(step::StepPlan* plan) {
  if (num_entries_ == plan->scheduled.size()) plan->scheduled.emplace_back();
  step::ScheduledRequest* entry = &plan->scheduled[num_entries_++];
  entry->start.reset();
  entry->resumed_output_token_ids.clear();
  entry->draft_token_ids.clear();
  entry->new_block_ids.clear();
  return entry;
}

}  // namespace pagemill::scheduler
