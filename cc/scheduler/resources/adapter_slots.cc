#include "cc/scheduler/resources/adapter_slots.h"

#include <algorithm>

namespace pagemill::scheduler {

bool AdapterSlots::CanStart(step::AdapterId adapter) const {
  if (adapter == step::kNoAdapter) return true;
  if (closed_ == adapter) return false;
  return !full() || running_.contains(adapter);
}

void AdapterSlots::Start(step::AdapterId adapter) {
  if (adapter == step::kNoAdapter) return;
  if (running_[adapter]++ == 0) changed_ = true;
  if (num_waiting_ == 0 || closed_ || ++num_passed_ < kPatience || !full()) return;
  closed_ = std::min_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) {
              return a.second < b.second;
            })->first;
}

void AdapterSlots::Stop(step::AdapterId adapter) {
  if (adapter == step::kNoAdapter) return;
  const auto found = running_.find(adapter);
  if (--found->second > 0) return;
  running_.erase(found);
  changed_ = true;
  num_passed_ = 0;
  if (closed_ == adapter) closed_.reset();
}

void AdapterSlots::Wait(RequestState* request) {
  waiting_[request->request->adapter].insert(request);
  ++num_waiting_;
}

void AdapterSlots::StopWaiting(RequestState* request) {
  const auto found = waiting_.find(request->request->adapter);
  found->second.erase(request);
  if (found->second.empty()) waiting_.erase(found);
  if (--num_waiting_ > 0) return;
  num_passed_ = 0;
  closed_.reset();
}

void AdapterSlots::Wake(std::vector<RequestState*>* awake) {
  if (!changed_) return;
  changed_ = false;
  for (const auto& [adapter, requests] : waiting_) {
    if (!CanStart(adapter)) continue;
    const auto end = running_.contains(adapter) ? requests.end() : std::next(requests.begin());
    awake->insert(awake->end(), requests.begin(), end);
  }
}

Status AdapterSlots::CheckIntegrity() const {
  if (running_.size() > static_cast<size_t>(max_adapters_)) {
    return Internal("adapter slots: more adapters run than there are slots");
  }
  size_t waiting = 0;
  for (const auto& [adapter, requests] : waiting_) {
    if (requests.empty()) return Internal("adapter slots: an empty waiting list");
    for (const RequestState* request : requests) {
      if (request->request->adapter != adapter) return Internal("adapter slots: in a wrong list");
    }
    waiting += requests.size();
    // Requests that could start must have been woken, or will be.
    if (!changed_ && running_.contains(adapter) && CanStart(adapter)) {
      return Internal("adapter slots: a request waits for an adapter that is at hand");
    }
  }
  for (const auto& [adapter, count] : running_) {
    if (count <= 0) return Internal("adapter slots: an adapter is kept that no request uses");
  }
  if (waiting != num_waiting_) return Internal("adapter slots: waiting requests are miscounted");
  if (closed_ && !running_.contains(*closed_)) {
    return Internal("adapter slots: the closed adapter has no running request");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
