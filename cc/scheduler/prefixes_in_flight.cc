#include "cc/scheduler/prefixes_in_flight.h"

#include <algorithm>

namespace pagemill::scheduler {

void PrefixesInFlight::Announce(RequestState* request, int32_t block) {
  const auto hashes = request->blocks.hashes();
  if (static_cast<size_t>(block) >= hashes.size()) return;
  if (computers_.emplace(hashes[block], request).second) request->announced_block = block;
}

RequestState* PrefixesInFlight::FindComputer(const RequestState& request, int32_t block) const {
  const auto hashes = request.blocks.hashes();
  if (computers_.empty() || static_cast<size_t>(block) >= hashes.size()) return nullptr;
  const auto found = computers_.find(hashes[block]);
  return found == computers_.end() ? nullptr : found->second;
}

void PrefixesInFlight::Wait(RequestState* request, RequestState* computer) {
  const auto wanted = request->blocks.hashes();
  const auto computed = computer->blocks.hashes();
  // Hashes are chains: where they agree once, they agree on all blocks before.
  const auto ends = std::mismatch(wanted.begin(), wanted.end(), computed.begin(), computed.end());
  request->prefix_computer = computer;
  request->num_prefix_blocks = static_cast<int32_t>(ends.first - wanted.begin());
  computer->prefix_waiters.push_back(request);
}

void PrefixesInFlight::StopWaiting(RequestState* request) {
  if (request->prefix_computer == nullptr) return;
  std::erase(request->prefix_computer->prefix_waiters, request);
  request->prefix_computer = nullptr;
}

void PrefixesInFlight::Forget(RequestState* computer) {
  computers_.erase(computer->blocks.hashes()[computer->announced_block]);
  computer->announced_block = -1;
}

void PrefixesInFlight::Advance(RequestState* computer, int32_t num_blocks,
                               std::vector<RequestState*>* awake) {
  if (computer->announced_block < 0 || num_blocks <= computer->announced_block) return;
  Forget(computer);
  std::vector<RequestState*>& waiters = computer->prefix_waiters;
  std::erase_if(waiters, [num_blocks, awake](RequestState* waiter) {
    if (waiter->num_prefix_blocks > num_blocks) return false;
    waiter->prefix_computer = nullptr;
    awake->push_back(waiter);
    return true;
  });
  Announce(computer, num_blocks);
  // Another computes the rest: waiters would not hear from this one again before it ends.
  if (computer->announced_block < 0) Withdraw(computer, awake);
}

void PrefixesInFlight::Withdraw(RequestState* computer, std::vector<RequestState*>* awake) {
  if (computer->announced_block >= 0) Forget(computer);
  for (RequestState* waiter : computer->prefix_waiters) {
    waiter->prefix_computer = nullptr;
    awake->push_back(waiter);
  }
  computer->prefix_waiters.clear();
}

Status PrefixesInFlight::CheckIntegrity() const {
  for (const auto& [hash, computer] : computers_) {
    if (computer->status != RequestStatus::kRunning || computer->announced_block < 0 ||
        computer->blocks.hashes()[computer->announced_block] != hash) {
      return Internal("prefixes in flight: an entry is not what its request computes");
    }
    for (const RequestState* waiter : computer->prefix_waiters) {
      if (waiter->prefix_computer != computer ||
          waiter->num_prefix_blocks <= computer->announced_block) {
        return Internal("prefixes in flight: a request waits for what is there");
      }
    }
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
