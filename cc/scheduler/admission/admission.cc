#include "cc/scheduler/admission/admission.h"

namespace pagemill::scheduler {

Status Admission::Check(const step::Request& request, QueueAccount account) const {
  PAGEMILL_RETURN_IF_ERROR(request_check_.Check(request));
  return account == QueueAccount::kHost ? OkStatus() : queue_.Check(request, std::nullopt);
}

void Admission::Enter(RequestState* request, QueueAccount account) {
  deadlines_.Insert(request);
  if (account == QueueAccount::kScheduler) request->ticket = queue_.Enter(*request->request);
}

void Admission::Start(RequestState* request) {
  ++num_started_;
  if (request->ticket) queue_.Start(&*request->ticket);
  deadlines_.Start(request);
}

void Admission::Leave(RequestState* request) {
  const bool started = request->num_cached_tokens.has_value();
  deadlines_.Remove(request);
  if (started) --num_started_;
  if (!request->ticket) return;
  queue_.Leave(*request->ticket);
  if (started && request->generates) {
    const auto num_outputs = static_cast<int64_t>(request->output_token_ids.size());
    queue_.estimator().ObserveOutput(num_outputs);
  }
}

Status Admission::CheckIntegrity(size_t num_with_deadline, int64_t num_started) const {
  if (num_started != num_started_) return Internal("admission: started requests are miscounted");
  if (num_with_deadline != deadlines_.size()) {
    return Internal("admission: deadlines are miscounted");
  }
  return queue_.CheckIntegrity();
}

}  // namespace pagemill::scheduler
