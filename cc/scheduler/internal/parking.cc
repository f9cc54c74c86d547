#include "cc/scheduler/internal/parking.h"

namespace pagemill::scheduler::internal {

void Parking::Add(RequestState* request, ParkReason reason) {
  lists_.Add(request, reason);
  if (reason == ParkReason::kAdapterSlot) adapters_.Wait(request);
}

void Parking::AddBehind(RequestState* producer, RequestState* request) {
  lists_.Add(request, ParkReason::kPrefixInFlight);
  prefixes_.Wait(request, producer);
}

void Parking::Leave(RequestState* request) {
  if (request->park_reason == ParkReason::kPrefixInFlight) {
    prefixes_.StopWaiting(request);
    std::erase(awake_, request);
  } else if (request->park_reason == ParkReason::kAdapterSlot) {
    adapters_.StopWaiting(request);
  }
  lists_.Remove(request);
}

RequestState* Parking::FindProducer(const RequestState& request, int32_t num_cached_tokens) const {
  if (!request.reads_prefix_cache()) return nullptr;
  return prefixes_.FindProducer(request, num_cached_tokens / options_.block_size);
}

void Parking::Start(RequestState* request, int32_t num_cached_tokens) {
  adapters_.Start(request->request->adapter);
  if (request->reads_prefix_cache()) {
    prefixes_.Announce(request, num_cached_tokens / options_.block_size);
  }
}

void Parking::AdvancePrefix(RequestState* request) {
  prefixes_.Advance(request, request->num_computed_tokens / options_.block_size, &awake_);
}

void Parking::Stop(RequestState* request) {
  adapters_.Stop(request->request->adapter);
  prefixes_.Withdraw(request, &awake_);
}

Status Parking::CheckIntegrity() const {
  PAGEMILL_RETURN_IF_ERROR(lists_.CheckIntegrity());
  if (size(ParkReason::kAdapterSlot) != adapters_.num_waiting()) {
    return Internal("parking: requests that wait for adapters are miscounted");
  }
  PAGEMILL_RETURN_IF_ERROR(adapters_.CheckIntegrity());
  return prefixes_.CheckIntegrity();
}

}  // namespace pagemill::scheduler::internal
