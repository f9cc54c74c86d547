#include "cc/scheduler/admission/admission.h"

namespace pagemill::scheduler {

Status Admission::Check(const step::Request& request, bool entered) const {
  PAGEMILL_RETURN_IF_ERROR(request_check_.Check(request));
  return entered ? OkStatus() : queue_.Check(request, std::nullopt);
}

void Admission::Enter(RequestState* request, const std::optional<QueueTicket>& ticket) {
  deadlines_.Insert(request);
  request->ticket = ticket ? *ticket : queue_.Enter(*request->request);
}

void Admission::Start(RequestState* request) {
  ++num_started_;
  queue_.Start(&request->ticket);
  deadlines_.Start(request);
}

void Admission::Leave(RequestState* request) {
  const bool started = !request->ticket.waits;
  deadlines_.Remove(request);
  queue_.Leave(request->ticket);
  if (!started) return;
  --num_started_;
  if (request->generates) {
    queue_.ObserveOutput(static_cast<int64_t>(request->output_token_ids.size()));
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
