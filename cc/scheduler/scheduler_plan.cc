// Scheduler::Schedule() and what it is made of.
#include <algorithm>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

void Scheduler::Schedule(step::StepPlan* plan, StepBudget step_budget) {
  plan->released.clear();
  plan->released_media.clear();
  plan->num_common_prefix_blocks.clear();
  plan->total_num_tokens = 0;
  num_entries_ = 0;
  in_flight_.emplace_back();
  in_flight_.back().entries = std::move(spare_entries_);
  in_flight_.back().entries.clear();

  Budget budget{options_.max_num_tokens, options_.max_num_logits_rows,
                std::max(1, step_budget.prefill_tokens)};
  if (pause_mode_ != PauseMode::kKeep) {
    WakeForStep();
    GiveWay();
    SharePrefills(&budget);
    ScheduleRunning(&budget, plan);
    ScheduleWaiting(&budget, plan);
  }

  plan->scheduled.resize(num_entries_);
  if (plan->empty()) {
    // The next plan that runs lists the slots released meanwhile.
    spare_entries_ = std::move(in_flight_.back().entries);
    in_flight_.pop_back();
    return;
  }
  plan->step_id = ++num_plans_;
  plan->total_num_tokens = options_.max_num_tokens - budget.tokens;
  plan->released.swap(released_);
  encoder_cache_.TakeReleased(&plan->released_media);
  if (running_.size() > 1) {  // what all share, any of them knows
    cache_.NumCommonPrefixBlocks(running_.front()->blocks, &plan->num_common_prefix_blocks);
  }
  in_flight_.back().step_id = plan->step_id;
}

// Preempts running requests for waiting ones that the policy prefers to them and that find no slot
// or no blocks. Before the running ones get tokens, so that none loses a place in the plan.
void Scheduler::GiveWay() {
  int32_t promised = -1;
  seated_.clear();
  RequestState* request = policy_->Next();
  while (request != nullptr && !running_.empty() && policy_->Preempts(*request, *running_.back())) {
    if (WaitForAdapter(request)) {
      request = policy_->Next();
      continue;
    }
    if (promised < 0) promised = NumPromisedBlocks();
    if (!Seat(request, seated_.size() + 1, &promised)) break;
    policy_->Remove(request);
    seated_.push_back(request);
    request = policy_->Next();
  }
  for (RequestState* seated : seated_) policy_->Insert(seated);
}

// Preempts until `num_slots` slots and the request's blocks are free. False, and nothing happens,
// where it would not help.
bool Scheduler::Seat(RequestState* request, size_t num_slots, int32_t* promised) {
  // What would be free if all that may be preempted were.
  int32_t reserved = *promised;
  size_t slots = free_slots_.size();
  for (size_t i = running_.size(); i-- > 0 && policy_->Preempts(*request, *running_[i]); ++slots) {
    reserved -= cache_.NumBlocks(running_[i]->num_tokens());
  }
  if (slots < num_slots || !HasBlocksFor(request, reserved)) return false;
  while (free_slots_.size() < num_slots || !HasBlocksFor(request, *promised)) {
    // Blocks that others share stay taken: it can still end without success.
    if (running_.empty() || !policy_->Preempts(*request, *running_.back())) return false;
    *promised -= NumPromisedBlocks(*running_.back());
    Preempt(running_.size() - 1);
  }
  *promised += cache_.NumBlocks(request->num_tokens());
  return true;
}

bool Scheduler::HasBlocksFor(RequestState* request, int32_t num_reserved_blocks) {
  kv_cache::PrefixMatch match;
  if (ReadsPrefixCache(*request)) {
    match = cache_.FindPrefix(*request->request, request->tokens(), &request->blocks);
  }
  return cache_.CanAllocate(request->blocks, &match, request->num_tokens(), num_reserved_blocks);
}

void Scheduler::ScheduleRunning(Budget* budget, step::StepPlan* plan) {
  for (size_t i = 0; i < running_.size() && budget->tokens > 0;) {
    RequestState* request = running_[i];
    const int32_t n = NumTokensWithMedia(*request, *budget);
    if (n > 0) {
      if (request->num_drafts_in_flight > 0 &&
          WaitsForRejections(*request, request->num_scheduled_tokens + n)) {
        ++i;
        continue;
      }
      // Without room the request itself was preempted: another one stands at its place.
      if (!MakeRoom(i, request->num_scheduled_tokens + n)) continue;
      const auto num_behind = static_cast<int32_t>(running_.size() - i - 1);
      Place(request, {n, NumDraftsToRun(*request, n, num_behind, *budget)}, budget,
            NextEntry(plan));
    }
    ++i;
  }
}

void Scheduler::ScheduleWaiting(Budget* budget, step::StepPlan* plan) {
  if (free_slots_.empty()) return;
  UnparkLongPrefill();
  int32_t num_passed = 0;
  int32_t promised = -1;  // counted when the first request comes that might start
  while (budget->tokens > 0 && !free_slots_.empty()) {
    RequestState* request = policy_->Next();
    if (request == nullptr) return;
    if (WaitForAdapter(request)) continue;
    if (promised < 0) promised = NumPromisedBlocks();

    kv_cache::PrefixMatch match;
    if (ReadsPrefixCache(*request)) {
      match = cache_.FindPrefix(*request->request, request->tokens(), &request->blocks);
    }
    if (WaitForPrefix(request, match) || FetchKv(request, match, promised)) continue;
    request->num_scheduled_tokens = match.num_tokens;
    const int32_t n = NumTokensWithMedia(*request, *budget);
    const bool lacks_encoder = n == 0 && LacksEncoder(*request, *budget);
    if ((n == 0 && !lacks_encoder) ||
        !cache_.CanAllocate(request->blocks, &match, request->num_tokens(), promised)) {
      request->num_scheduled_tokens = 0;
      return;
    }
    if (lacks_encoder) {
      request->num_scheduled_tokens = 0;
      if (WaitForEncoder(request)) continue;
      return;
    }
    if (request->num_scheduled_tokens + n < request->num_tokens()) {
      const PartialStart start = StartPartially(request);
      if (start != PartialStart::kNow) request->num_scheduled_tokens = 0;
      // Only so many are passed in one step, however many wait.
      if (start == PartialStart::kParked && ++num_passed < options_.max_num_seqs) continue;
      if (start != PartialStart::kNow) return;
    }
    step::ScheduledRequest* entry = NextEntry(plan);
    Start(request, match, entry);
    Place(request, {.num_tokens = n, .match = &match}, budget, entry);
    promised += NumPromisedBlocks(*request);
  }
}

// Blocks that a running request still needs for the tokens it is known to have.
int32_t Scheduler::NumPromisedBlocks(const RequestState& request) const {
  if (request.num_scheduled_tokens >= request.num_tokens()) return 0;
  return cache_.NumMissingBlocks(request.blocks, request.num_tokens());
}

int32_t Scheduler::NumPromisedBlocks() const {
  int32_t promised = 0;
  for (const RequestState* request : running_) promised += NumPromisedBlocks(*request);
  return promised;
}

// A pooled output or the logprobs of a prompt need every token to be run.
bool Scheduler::ReadsPrefixCache(const RequestState& request) const {
  return !request.request->skip_reading_prefix_cache && !request.pooling &&
         request.prompt_logprobs_done;
}

// Known tokens, and those that steps in flight give at most, if the plan may go ahead of them. A
// request that ends if it gets all of those waits: with what is in flight it may need no more.
int32_t Scheduler::NumReachableTokens(const RequestState& request) const {
  const int32_t known = request.num_tokens();
  const int32_t unknown = request.num_tokens_in_flight();
  if (unknown == 0 || !options_.decode_ahead) return known;
  const auto num_outputs = static_cast<int32_t>(request.output_token_ids.size());
  const bool ends = num_outputs + unknown >= request.request->sampling.max_tokens ||
                    known + unknown >= admission_.max_request_tokens();
  return ends ? known : known + unknown;
}

// How many tokens the request may run now; 0 if it cannot.
int32_t Scheduler::NumTokensToRun(const RequestState& request, const Budget& budget) const {
  const int32_t left = NumReachableTokens(request) - request.num_scheduled_tokens;
  if (left <= 0) return 0;
  int32_t n = std::min(left, budget.tokens);
  int32_t least = 1;
  if (options_.chunked_prefill) {
    if (options_.long_prefill_token_threshold > 0) {
      n = std::min(n, options_.long_prefill_token_threshold);
    }
    n = PrefillShare(budget, n);
  } else {
    least = std::max(least, request.prompt_size - request.num_scheduled_tokens);
    if (least > 1 && budget.prefill_tokens == 0) return 0;
  }
  if (NeedsPromptLogprobs(request)) {
    n = std::min(n, budget.rows);
  } else if (n == left && budget.rows == 0 && request.samples()) {
    --n;  // all but the token after which a row would be needed
  }
  return n < least ? 0 : n;
}

// The most tokens that NumTokensWithMedia() may raise a step to.
int32_t Scheduler::MostTokensToRun(const RequestState& request, const Budget& budget) const {
  if (!request.prompt_logprobs_done) return std::min(budget.tokens, budget.rows);
  const int32_t left = request.num_tokens() - request.num_scheduled_tokens;
  const bool no_row = budget.rows == 0 && request.generates;
  return std::min(budget.tokens, no_row ? left - 1 : left);
}

// NumTokensToRun(), less what media items do not allow. More than the cap of a long prefill where
// an item is not to be cut.
int32_t Scheduler::NumTokensWithMedia(const RequestState& request, const Budget& budget) const {
  const int32_t n = NumTokensToRun(request, budget);
  const int32_t begin = request.num_scheduled_tokens;
  if (n == 0 || begin >= request.media_end) return n;
  const int32_t fits = encoder_cache_.Fit(*request.request, request.held_media,
                                          {begin, n, MostTokensToRun(request, budget)});
  return !options_.chunked_prefill && begin + fits < request.prompt_size ? 0 : fits;
}

// Would the request, which may not run, run if encoder outputs were no matter? Where it is the
// tokens of the step that do not suffice for an item that is not to be cut, it waits for its turn.
bool Scheduler::LacksEncoder(const RequestState& request, const Budget& budget) const {
  const int32_t begin = request.num_scheduled_tokens;
  if (begin >= request.media_end || NumTokensToRun(request, budget) == 0) return false;
  if (options_.chunked_media_input) return true;
  for (const step::MediaItem& item : request.request->media) {
    const int32_t end = item.first_token + item.num_tokens;
    if (end > begin) return end - begin <= MostTokensToRun(request, budget);
  }
  return true;
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
  StopRunning(request);
  cache_.Free(&request->blocks);
  Enqueue(request);
  UnparkAwake();
  ++counters_.num_preemptions;
}

void Scheduler::Start(RequestState* request, const kv_cache::PrefixMatch& match,
                      step::ScheduledRequest* entry) {
  policy_->Remove(request);
  adapters_.Start(request->request->adapter);
  request->status = RequestStatus::kRunning;
  request->index = free_slots_.back();
  free_slots_.pop_back();
  slots_[request->index.value()].holder = request;
  request->num_computed_tokens = match.num_tokens;
  auto place = running_.end();
  while (place != running_.begin() && policy_->RunsBefore(*request, **(place - 1))) --place;
  running_.insert(place, request);
  entry->start = request->request;
  entry->resumed_output_token_ids = request->output_token_ids;
  if (ReadsPrefixCache(*request)) {
    prefixes_in_flight_.Announce(request, match.num_tokens / options_.kv_cache.block_size);
  }
  if (request->num_cached_tokens) return;  // a resumed request was counted before
  request->num_cached_tokens = match.num_tokens;
  ++num_started_;
  queue_.Start(&request->ticket);
  deadlines_.Start(request);
  if (charges_) policy_->Charge(*request, request->prompt_size);
  counters_.prompt_tokens += static_cast<uint64_t>(request->prompt_size);
  if (ReadsPrefixCache(*request) && options_.kv_cache.enable_prefix_caching) {
    counters_.prefix_cache_query_tokens += static_cast<uint64_t>(request->prompt_size);
    counters_.prefix_cache_hit_tokens += static_cast<uint64_t>(match.num_tokens);
  }
}

// The logprobs of the prompt tokens that a step runs are wanted from it.
bool Scheduler::NeedsPromptLogprobs(const RequestState& request) {
  return !request.prompt_logprobs_done && request.num_scheduled_tokens < request.prompt_size;
}

// Gives the request its tokens of this step, and the blocks for them.
void Scheduler::Place(RequestState* request, const Run& run, Budget* budget,
                      step::ScheduledRequest* entry) {
  const int32_t begin = request->num_scheduled_tokens;
  const int32_t end = begin + run.num_tokens;
  const int32_t num_known = request->num_tokens();
  cache_.Allocate(end + run.num_drafts, run.match, &request->blocks, &entry->new_block_ids);
  entry->index = request->index;
  entry->num_computed_tokens = begin;
  if (begin < request->media_end) {
    encoder_cache_.Take(*request->request, begin, end, &request->held_media,
                        &entry->media_to_encode);
  }
  if (begin < num_known) {
    request->tokens().CopyTo(begin, end, &entry->token_ids);
  } else {
    // Known tokens and a placeholder never come together: a step that samples ran all known ones.
    entry->token_ids.assign(1, step::kPlaceholderTokenId);
  }
  if (run.num_drafts > 0) PlaceDrafts(*request, run.num_drafts, entry);
  entry->sample = end == num_known + request->num_tokens_in_flight() && request->samples();
  entry->prompt_logprobs = NeedsPromptLogprobs(*request);
  request->num_scheduled_tokens = end + run.num_drafts;
  if (run.match != nullptr || request->prefills_partly) TakePrefillTokens(run.num_tokens, budget);
  SetPrefillsPartly(request, end < num_known);
  request->num_samples_in_flight += entry->sample;
  request->num_drafts_in_flight += run.num_drafts;

  const int32_t rows = entry->sample ? 1 + run.num_drafts : 0;
  budget->tokens -= run.num_tokens + run.num_drafts;
  budget->rows -= entry->prompt_logprobs ? run.num_tokens : rows;
  in_flight_.back().entries.push_back({request->index, slots_[request->index.value()].generation,
                                       run.num_tokens, run.num_drafts, begin < num_known,
                                       entry->sample, entry->prompt_logprobs});
}

// The plan's next entry, emptied; memory of earlier plans is used again.
step::ScheduledRequest* Scheduler::NextEntry(step::StepPlan* plan) {
  if (num_entries_ == plan->scheduled.size()) plan->scheduled.emplace_back();
  step::ScheduledRequest* entry = &plan->scheduled[num_entries_++];
  entry->start.reset();
  entry->resumed_output_token_ids.clear();
  entry->draft_token_ids.clear();
  entry->media_to_encode.clear();
  entry->new_block_ids.clear();
  return entry;
}

}  // namespace pagemill::scheduler
