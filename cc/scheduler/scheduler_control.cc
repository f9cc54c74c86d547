// What is done to all requests at once: pause and resume, deadlines, forgetting the prefix cache.
#include <algorithm>
#include <string>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

void Scheduler::Pause(PauseMode mode, std::vector<RequestEvent>* events) {
  pause_mode_ = mode;
  if (mode == PauseMode::kKeep) return;
  if (mode == PauseMode::kAbort) AbortAll(events);
  // Who never started leaves the queue; a preempted request is one of those that finish.
  std::vector<RequestState*> waiting;
  while (RequestState* request = policy_->Next()) {
    policy_->Remove(request);
    waiting.push_back(request);
  }
  for (RequestState* request : waiting) Enqueue(request);
}

void Scheduler::Resume() {
  pause_mode_.reset();
  while (RequestState* request = parked_.front(ParkReason::kPaused)) Unpark(request);
}

void Scheduler::AbortAll(std::vector<RequestEvent>* events) {
  std::vector<RequestState*> all;
  for (const auto& [id, request] : requests_) all.push_back(request.get());
  std::sort(all.begin(), all.end(),
            [](const RequestState* a, const RequestState* b) { return a->arrival < b->arrival; });
  for (RequestState* request : all) {
    Finish(request, step::FinishReason::kAbort, &events->emplace_back());
  }
  DropStopped();
}

void Scheduler::Expire(int64_t now_us, std::vector<RequestEvent>* events) {
  while (RequestState* request = deadlines_.Expired(now_us)) {
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
  if (!cache_.CanReset()) return false;
  if (connector_ != nullptr && reset_connector) {
    std::vector<kv_cache::KvTransfer> planned;
    if (!connector_->Reset(&planned)) return false;
    PlanTransfers(&planned, nullptr);
  }
  return cache_.Reset();
}

}  // namespace pagemill::scheduler
