// Ways into and out of the parked state. A parked request is in no queue and holds no slot and no
// blocks (those of a load belong to the load): what it had computed is found again by the prefix
// cache.
#include <utility>
#include <vector>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

void Scheduler::Park(RequestState* request, ParkReason reason) {
  if (request->status == RequestStatus::kRunning) {
    StopRunning(request);
    running_changed_ = true;
  } else if (request->status == RequestStatus::kParked) {
    LeaveParked(request);
  } else {
    policy_->Remove(request);
  }
  cache_.Free(&request->blocks);
  parked_.Add(request, reason);
}

// Out of the parked requests, and of whatever keeps account of them.
void Scheduler::LeaveParked(RequestState* request) {
  if (request->park_reason == ParkReason::kPrefixInFlight) {
    prefixes_in_flight_.StopWaiting(request);
    std::erase(awake_, request);
  } else if (request->park_reason == ParkReason::kAdapterSlot) {
    adapters_.StopWaiting(request);
  }
  parked_.Remove(request);
}

void Scheduler::Unpark(RequestState* request) {
  LeaveParked(request);
  cache_.Free(&request->blocks);
  Enqueue(request);
}

void Scheduler::Enqueue(RequestState* request) {
  if (!request->pending_input.token_ids.empty()) {
    GrowPrompt(request, std::exchange(request->pending_input, InputChunk()));
  }
  if (pause_mode_ && *pause_mode_ != PauseMode::kKeep && !request->num_cached_tokens) {
    parked_.Add(request, ParkReason::kPaused);
    return;
  }
  request->status = RequestStatus::kWaiting;
  policy_->Insert(request);
}

RequestState* Scheduler::FindParked(step::RequestId id, ParkReason reason) const {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return nullptr;
  RequestState* request = found->second.get();
  const bool parked = request->status == RequestStatus::kParked && request->park_reason == reason;
  return parked ? request : nullptr;
}

// Parks the request where a running one is computing what comes behind its cached prefix.
bool Scheduler::WaitForPrefix(RequestState* request, const kv_cache::PrefixMatch& match) {
  if (!ReadsPrefixCache(*request)) return false;
  const int32_t next_block = match.num_tokens / options_.kv_cache.block_size;
  RequestState* computer = prefixes_in_flight_.FindComputer(*request, next_block);
  if (computer == nullptr) return false;
  Park(request, ParkReason::kPrefixInFlight);
  prefixes_in_flight_.Wait(request, computer);
  return true;
}

// Parks the request where its adapter finds no slot.
bool Scheduler::WaitForAdapter(RequestState* request) {
  if (adapters_.CanStart(request->request->adapter)) return false;
  Park(request, ParkReason::kAdapterSlot);
  adapters_.Wait(request);
  return true;
}

// Parks the request, which could start except for its media, until the next step. All that are
// parked for this are looked at in each step, so there are never more than may run.
bool Scheduler::WaitForEncoder(RequestState* request) {
  if (parked_.size(ParkReason::kEncoderBudget) >= slots_.size()) return false;
  Park(request, ParkReason::kEncoderBudget);
  encoder_cache_.Close();
  return true;
}

// What may have changed with the results since the last step, or changes with each step.
void Scheduler::WakeForStep() {
  encoder_cache_.StartStep();
  adapters_.Wake(&awake_);
  while (RequestState* request = parked_.front(ParkReason::kEncoderBudget)) Unpark(request);
  UnparkAwake();
}

// The request's computed tokens were committed.
void Scheduler::AdvancePrefix(RequestState* request) {
  if (request->announced_block < 0) return;  // most calls: a decode step
  prefixes_in_flight_.Advance(request, request->num_computed_tokens / options_.kv_cache.block_size,
                              &awake_);
}

void Scheduler::UnparkAwake() {
  if (awake_.empty()) return;
  const std::vector<RequestState*> awake = std::exchange(awake_, {});
  for (RequestState* request : awake) Unpark(request);
}

bool Scheduler::Release(step::RequestId id) {
  RequestState* request = FindParked(id, ParkReason::kHeld);
  if (request == nullptr) return false;
  Unpark(request);
  return true;
}

}  // namespace pagemill::scheduler
