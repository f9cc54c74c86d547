// Ways into and out of the parked state. A parked request is in no queue and holds no slot and, but
// for a load into them, no blocks: what it had computed is found again by the prefix cache.
#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

void Scheduler::Park(RequestState* request, ParkReason reason) {
  if (request->status == RequestStatus::kRunning) {
    StopRunning(request);
    running_changed_ = true;
  } else if (request->status == RequestStatus::kParked) {
    parked_.Remove(request);
  } else {
    policy_->Remove(request);
  }
  if (reason != ParkReason::kKvLoad) cache_.Free(&request->blocks);
  parked_.Add(request, reason);
}

void Scheduler::Unpark(RequestState* request) {
  parked_.Remove(request);
  cache_.Free(&request->blocks);
  Enqueue(request);
}

void Scheduler::Enqueue(RequestState* request) {
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

bool Scheduler::Release(step::RequestId id) {
  RequestState* request = FindParked(id, ParkReason::kHeld);
  if (request == nullptr) return false;
  Unpark(request);
  return true;
}

}  // namespace pagemill::scheduler
