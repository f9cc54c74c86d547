#include "cc/scheduler/admission/deadline_queue.h"

#include <algorithm>
#include <limits>

namespace pagemill::scheduler {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

void DeadlineQueue::InsertAt(RequestState* request, int64_t time_us) {
  if (time_us == kNever) return;
  request->next_deadline_us = time_us;
  queue_.insert({time_us, request->arrival, request});
}

void DeadlineQueue::Insert(RequestState* request) {
  const step::Request& r = *request->request;
  InsertAt(request, std::min(r.start_deadline_us.value_or(kNever), r.deadline_us.value_or(kNever)));
}

void DeadlineQueue::Start(RequestState* request) {
  if (!request->request->start_deadline_us) return;
  Remove(request);
  InsertAt(request, request->request->deadline_us.value_or(kNever));
}

void DeadlineQueue::Remove(RequestState* request) {
  if (!request->next_deadline_us) return;
  queue_.erase({*request->next_deadline_us, request->arrival, request});
  request->next_deadline_us.reset();
}

RequestState* DeadlineQueue::Expired(int64_t now_us) const {
  if (queue_.empty() || queue_.begin()->time_us > now_us) return nullptr;
  return queue_.begin()->request;
}

std::optional<int64_t> DeadlineQueue::next_time_us() const {
  if (queue_.empty()) return std::nullopt;
  return queue_.begin()->time_us;
}

}  // namespace pagemill::scheduler
