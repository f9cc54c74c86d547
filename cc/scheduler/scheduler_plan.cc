// Scheduler::Schedule() and what it is made of.
#include <algorithm>

#include "cc/kv_cache/kv_cache_manager.h"
#include "cc/scheduler/admission/admission.h"
#include "cc/scheduler/internal/draft_accounts.h"
#include "cc/scheduler/internal/load_coordinator.h"
#include "cc/scheduler/internal/parking.h"
#include "cc/scheduler/internal/request_slots.h"
#include "cc/scheduler/internal/steps_in_flight.h"
#include "cc/scheduler/internal/token_budget.h"
#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/resources/encoder_cache.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

using internal::DraftAccounts;
using internal::TokenBudget;

// What one request runs in this step.
struct Scheduler::Run {
  int32_t num_tokens = 0;
  int32_t num_drafts = 0;
  const kv_cache::PrefixMatch* match = nullptr;  // if it starts
};

namespace {

// The plan's next entry, emptied; memory of earlier plans is used again.
step::ScheduledRequest* NextEntry(step::StepPlan* plan, size_t* num_entries) {
  if (*num_entries == plan->scheduled.size()) plan->scheduled.emplace_back();
  step::ScheduledRequest* entry = &plan->scheduled[(*num_entries)++];
  entry->start.reset();
  entry->resumed_output_token_ids.clear();
  entry->draft_token_ids.clear();
  entry->media_to_encode.clear();
  for (std::vector<step::BlockId>& group : entry->new_block_ids) group.clear();
  return entry;
}

}  // namespace

void Scheduler::Schedule(step::StepPlan* plan, StepBudget budget) {
  plan->released.clear();
  plan->released_media.clear();
  plan->num_common_prefix_blocks.clear();
  plan->total_num_tokens = 0;
  num_entries_ = 0;
  in_flight_->Begin();

  const int32_t num_tokens = options_.max_num_tokens;
  if (pause_mode_ != PauseMode::kKeep) {
    // What may have changed with the results since the last step, or changes with each step.
    encoder_cache_->StartStep();
    parking_->WakeForAdapters();
    UnparkAll(ParkReason::kEncoderBudget);
    if (parking_->has_awake()) UnparkAll(parking_->TakeAwake());
    PreemptForPriority();
    const size_t num_waiting = requests_.size() - parking_->size() - running_.size();
    const size_t num_starting = lacks_blocks_ ? 0 : std::min(num_waiting, slots_->num_free());
    budget_->StartStep({.num_tokens = num_tokens,
                        .num_prefill_tokens = budget.prefill_tokens,
                        .num_running = static_cast<int32_t>(running_.size()),
                        .num_waiting = static_cast<int32_t>(num_waiting),
                        .num_starting = static_cast<int32_t>(num_starting)});
    ScheduleRunning(plan);
    ScheduleWaiting(plan);
  }

  plan->scheduled.resize(num_entries_);
  if (plan->empty()) return;  // the next plan that runs lists the slots released meanwhile
  plan->step_id = in_flight_->Commit();
  plan->total_num_tokens = num_tokens - budget_->tokens();
  slots_->TakeReleased(&plan->released);
  encoder_cache_->TakeReleased(&plan->released_media);
  if (running_.size() > 1) {  // what all share, any of them knows
    cache_->NumCommonPrefixBlocks(running_.front()->blocks, &plan->num_common_prefix_blocks);
  }
}

// Preempts running requests for waiting ones that the policy prefers to them and that find no slot
// or no blocks. Before the running ones get tokens, so that none loses a place in the plan.
void Scheduler::PreemptForPriority() {
  int32_t promised = -1;
  reserved_.clear();
  RequestState* request = policy_->Next();
  while (request != nullptr && !running_.empty() && policy_->Preempts(*request, *running_.back())) {
    if (!parking_->HasAdapterSlot(*request)) {
      Park(request, ParkReason::kAdapterSlot);
    } else {
      if (promised < 0) promised = NumPromisedBlocks();
      if (!TryReserve(request, reserved_.size() + 1, &promised)) break;
      policy_->Remove(request);
      reserved_.push_back(request);
    }
    request = policy_->Next();
  }
  for (RequestState* reserved : reserved_) policy_->Insert(reserved);
}

// Preempts until `num_slots` slots and the request's blocks are free. False, and nothing happens,
// if it would not help.
bool Scheduler::TryReserve(RequestState* request, size_t num_slots, int32_t* promised) {
  const auto has_blocks = [&](int32_t num_reserved_blocks) {
    const kv_cache::PrefixMatch match = FindPrefix(request);
    return cache_->CanAllocate(request->blocks, &match, request->num_tokens(), num_reserved_blocks);
  };
  // What would be free if all that may be preempted were.
  int32_t reserved = *promised;
  size_t slots = slots_->num_free();
  for (size_t i = running_.size(); i-- > 0 && policy_->Preempts(*request, *running_[i]); ++slots) {
    reserved -= cache_->NumBlocks(running_[i]->num_tokens());
  }
  if (slots < num_slots || !has_blocks(reserved)) return false;
  while (slots_->num_free() < num_slots || !has_blocks(*promised)) {
    // Blocks that others share stay taken: it can still end without success.
    if (running_.empty() || !policy_->Preempts(*request, *running_.back())) return false;
    *promised -= NumPromisedBlocks(*running_.back());
    Preempt(running_.size() - 1);
  }
  *promised += cache_->NumBlocks(request->num_tokens());
  return true;
}

kv_cache::PrefixMatch Scheduler::FindPrefix(RequestState* request) {
  if (!request->reads_prefix_cache()) return {};
  return cache_->FindPrefix(*request->request, request->tokens(), &request->blocks);
}

void Scheduler::ScheduleRunning(step::StepPlan* plan) {
  for (size_t i = 0; i < running_.size() && budget_->tokens() > 0;) {
    RequestState* request = running_[i];
    const int32_t n = budget_->NumTokens(*request);
    if (n > 0) {
      if (request->num_drafts_in_flight > 0 &&
          drafts_->WaitsForRejections(*request, request->num_scheduled_tokens + n)) {
        ++i;
        continue;
      }
      // Without room the request itself was preempted: another one stands at its place.
      if (!MakeRoom(i, request->num_scheduled_tokens + n)) continue;
      const DraftAccounts::Room room{.tokens = budget_->tokens(),
                                     .rows = budget_->rows(),
                                     .num_behind = static_cast<int32_t>(running_.size() - i - 1),
                                     .num_running = static_cast<int32_t>(running_.size())};
      const int32_t num_drafts = drafts_->NumToRun(*request, n, room);
      Place(request, {n, num_drafts}, NextEntry(plan, &num_entries_));
    }
    ++i;
  }
}

// Parks the request if something else than its turn keeps it from starting.
bool Scheduler::ParkToStart(RequestState* request, const kv_cache::PrefixMatch& match,
                            int32_t promised) {
  if (RequestState* producer = parking_->FindProducer(*request, match.num_tokens)) {
    Park(request, ParkReason::kPrefixInFlight, producer);
    return true;
  }
  const std::optional<ParkReason> reason =
      loads_->Fetch(request, match, promised, in_flight_->num_plans());
  if (!reason) return false;
  Park(request, *reason);
  UnparkAll(loads_->TakeAwake());
  return true;
}

void Scheduler::ScheduleWaiting(step::StepPlan* plan) {
  if (slots_->full()) return;
  // One long prefill a step is enough: it is looked at again in the step in which it is let go.
  RequestState* long_prefill = parking_->front(ParkReason::kLongPrefill);
  if (long_prefill != nullptr && budget_->MayStartLong()) Unpark(long_prefill);
  int32_t num_passed = 0;
  int32_t promised = -1;  // counted when the first request comes that might start
  while (budget_->tokens() > 0 && !slots_->full()) {
    RequestState* request = policy_->Next();
    if (request == nullptr) return;
    if (!parking_->HasAdapterSlot(*request)) {
      Park(request, ParkReason::kAdapterSlot);
      continue;
    }
    if (promised < 0) promised = NumPromisedBlocks();
    const kv_cache::PrefixMatch match = FindPrefix(request);
    if (ParkToStart(request, match, promised)) continue;

    request->num_scheduled_tokens = match.num_tokens;
    const int32_t n = budget_->NumTokens(*request);
    const bool lacks_encoder = n == 0 && budget_->LacksEncoder(*request);
    const bool partly = match.num_tokens + n < request->num_tokens();
    request->num_scheduled_tokens = 0;
    const bool stops = n == 0 && !lacks_encoder;
    if (stops && options_.pipeline_stages == 1) return;
    lacks_blocks_ = !cache_->CanAllocate(request->blocks, &match, request->num_tokens(), promised);
    if (stops || lacks_blocks_) return;
    if (lacks_encoder) {
      if (!parking_->HasEncoderPlace()) return;
      Park(request, ParkReason::kEncoderBudget);
      encoder_cache_->Close();
      continue;
    }
    if (partly) {
      const TokenBudget::PartialStart start = budget_->MayStartPartly(*request);
      if (start == TokenBudget::PartialStart::kLater) return;
      if (start == TokenBudget::PartialStart::kTooLong) {
        Park(request, ParkReason::kLongPrefill);
        // Only so many are passed in one step, however many wait.
        if (++num_passed < options_.max_num_seqs) continue;
        return;
      }
    }
    request->num_scheduled_tokens = match.num_tokens;
    step::ScheduledRequest* entry = NextEntry(plan, &num_entries_);
    Start(request, match, entry);
    Place(request, {.num_tokens = n, .match = &match}, entry);
    promised += NumPromisedBlocks(*request);
  }
}

// Blocks that a running request still needs for the tokens it is known to have.
int32_t Scheduler::NumPromisedBlocks(const RequestState& request) const {
  if (request.num_scheduled_tokens >= request.num_tokens()) return 0;
  return cache_->NumMissingBlocks(request.blocks, request.num_tokens());
}

int32_t Scheduler::NumPromisedBlocks() const {
  int32_t promised = 0;
  for (const RequestState* request : running_) promised += NumPromisedBlocks(*request);
  return promised;
}

// Makes it possible to extend running_[position] to `num_tokens`, by preemption if need be. False
// if that request itself was preempted.
bool Scheduler::MakeRoom(size_t position, int32_t num_tokens) {
  const RequestState* request = running_[position];
  if (cache_->Covers(request->blocks, num_tokens)) return true;
  while (!cache_->CanAllocate(request->blocks, nullptr, num_tokens)) {
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
  cache_->Free(&request->blocks);
  Enqueue(request);
  if (parking_->has_awake()) UnparkAll(parking_->TakeAwake());
  ++counters_.num_preemptions;
}

void Scheduler::Start(RequestState* request, const kv_cache::PrefixMatch& match,
                      step::ScheduledRequest* entry) {
  policy_->Remove(request);
  request->status = RequestStatus::kRunning;
  slots_->Take(request);
  request->num_computed_tokens = match.num_tokens;
  auto place = running_.end();
  while (place != running_.begin() && policy_->RunsBefore(*request, **(place - 1))) --place;
  running_.insert(place, request);
  entry->start = request->request;
  entry->resumed_output_token_ids = request->output_token_ids;
  parking_->Start(request, match.num_tokens);
  if (request->num_cached_tokens) return;  // a resumed request was counted before
  request->num_cached_tokens = match.num_tokens;
  admission_->Start(request);
  if (charges_) policy_->Charge(*request, request->prompt_size);
  counters_.prompt_tokens += static_cast<uint64_t>(request->prompt_size);
  if (request->reads_prefix_cache() && options_.kv_cache.enable_prefix_caching) {
    CountPrefix(request, match);
  }
}

void Scheduler::CountPrefix(RequestState* request, const kv_cache::PrefixMatch& match) {
  const int32_t block_size = options_.kv_cache.block_size;
  const int32_t num_findable = (request->prompt_size - 1) / block_size * block_size;
  request->num_evicted_tokens = cache_->NumEvictedTokens(request->blocks, match);
  counters_.prefix_cache_query_tokens += static_cast<uint64_t>(request->prompt_size);
  counters_.prefix_cache_hit_tokens += static_cast<uint64_t>(match.num_tokens);
  counters_.prefix_cache_evicted_tokens += static_cast<uint64_t>(request->num_evicted_tokens);
  counters_.prefix_cache_partial_tokens +=
      static_cast<uint64_t>(request->prompt_size - num_findable);
}

// Gives the request its tokens of this step, and the blocks for them.
void Scheduler::Place(RequestState* request, const Run& run, step::ScheduledRequest* entry) {
  const int32_t begin = request->num_scheduled_tokens;
  const int32_t end = begin + run.num_tokens;
  const int32_t num_known = request->num_tokens();
  const int32_t num_covered = end + run.num_drafts;
  if (!kv_cache::KvCacheManager::Covers(request->blocks, num_covered)) {
    // There is room: MakeRoom() made it, or CanAllocate() found it before the request started.
    const Status allocated =
        cache_->Allocate(num_covered, run.match, &request->blocks, &entry->new_block_ids);
    PAGEMILL_CHECK(allocated.ok());
  }
  entry->index = request->index;
  entry->num_computed_tokens = begin;
  if (begin < request->media_end) {
    encoder_cache_->Take(*request->request, begin, end, &request->held_media,
                         &entry->media_to_encode);
  }
  if (begin < num_known) {
    request->tokens().CopyTo(begin, end, &entry->token_ids);
  } else {
    // Known tokens and a placeholder never come together: a step that samples ran all known ones.
    entry->token_ids.assign(1, step::kPlaceholderTokenId);
  }
  if (run.num_drafts > 0) DraftAccounts::Place(*request, run.num_drafts, &entry->draft_token_ids);
  entry->sample = end == num_known + request->num_tokens_in_flight() && request->samples();
  entry->prompt_logprobs = TokenBudget::NeedsPromptLogprobs(*request);
  request->num_scheduled_tokens = end + run.num_drafts;
  request->num_samples_in_flight += entry->sample;
  request->num_drafts_in_flight += run.num_drafts;
  budget_->Take(request, {.num_tokens = run.num_tokens,
                          .num_drafts = run.num_drafts,
                          .starts = run.match != nullptr,
                          .sample = entry->sample,
                          .prompt_logprobs = entry->prompt_logprobs});
  in_flight_->Add({.index = request->index,
                   .generation = slots_->generation(request->index),
                   .num_tokens = run.num_tokens,
                   .num_drafts = run.num_drafts,
                   .knows_drafts = begin < num_known,
                   .sample = entry->sample,
                   .prompt_logprobs = entry->prompt_logprobs});
}

}  // namespace pagemill::scheduler
