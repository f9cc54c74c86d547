#include "cc/scheduler/internal/prefixes_in_flight.h"

#include <algorithm>

namespace pagemill::scheduler::internal {

void PrefixesInFlight::Announce(RequestState* request, int32_t block) {
  const auto hashes = request->blocks.hashes();
  if (static_cast<size_t>(block) >= hashes.size()) return;
  if (producers_.emplace(hashes[block], request).second) request->announced_block = block;
}

RequestState* PrefixesInFlight::FindProducer(const RequestState& request, int32_t block) const {
  const auto hashes = request.blocks.hashes();
  if (producers_.empty() || static_cast<size_t>(block) >= hashes.size()) return nullptr;
  const auto found = producers_.find(hashes[block]);
  return found == producers_.end() ? nullptr : found->second;
}

void PrefixesInFlight::Wait(RequestState* request, RequestState* producer) {
  const auto wanted = request->blocks.hashes();
  const auto computed = producer->blocks.hashes();
  // Hashes are chains: where they agree once, they agree on all blocks before.
  const auto ends = std::mismatch(wanted.begin(), wanted.end(), computed.begin(), computed.end());
  request->prefix_producer = producer;
  request->num_prefix_blocks = static_cast<int32_t>(ends.first - wanted.begin());
  producer->prefix_waiters.push_back(request);
}

void PrefixesInFlight::StopWaiting(RequestState* request) {
  if (request->prefix_producer == nullptr) return;
  std::erase(request->prefix_producer->prefix_waiters, request);
  request->prefix_producer = nullptr;
}

void PrefixesInFlight::Forget(RequestState* producer) {
  producers_.erase(producer->blocks.hashes()[producer->announced_block]);
  producer->announced_block = -1;
}

void PrefixesInFlight::Advance(RequestState* producer, int32_t num_blocks,
                               std::vector<RequestState*>* awake) {
  if (producer->announced_block < 0 || num_blocks <= producer->announced_block) return;
  Forget(producer);
  std::vector<RequestState*>& waiters = producer->prefix_waiters;
  std::erase_if(waiters, [num_blocks, awake](RequestState* waiter) {
    if (waiter->num_prefix_blocks > num_blocks) return false;
    waiter->prefix_producer = nullptr;
    awake->push_back(waiter);
    return true;
  });
  Announce(producer, num_blocks);
  // Another computes the rest: waiters would not hear from this one again before it ends.
  if (producer->announced_block < 0) Withdraw(producer, awake);
}

void PrefixesInFlight::Withdraw(RequestState* producer, std::vector<RequestState*>* awake) {
  if (producer->announced_block >= 0) Forget(producer);
  for (RequestState* waiter : producer->prefix_waiters) {
    waiter->prefix_producer = nullptr;
    awake->push_back(waiter);
  }
  producer->prefix_waiters.clear();
}

Status PrefixesInFlight::CheckIntegrity() const {
  for (const auto& [hash, producer] : producers_) {
    if (producer->status != RequestStatus::kRunning || producer->announced_block < 0 ||
        producer->blocks.hashes()[producer->announced_block] != hash) {
      return Internal("prefixes in flight: an entry is not what its request computes");
    }
    for (const RequestState* waiter : producer->prefix_waiters) {
      if (waiter->prefix_producer != producer ||
          waiter->num_prefix_blocks <= producer->announced_block) {
        return Internal("prefixes in flight: a request waits for what is there");
      }
    }
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler::internal
