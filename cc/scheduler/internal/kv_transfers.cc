#include "cc/scheduler/internal/kv_transfers.h"

#include <algorithm>
#include <utility>

namespace pagemill::scheduler::internal {

using kv_cache::KvTransfer;
using kv_cache::TransferId;

namespace {

int32_t NumHeld(const KvTransfer& transfer) {
  if (transfer.direction != KvTransfer::Direction::kSend) return 0;
  return static_cast<int32_t>(transfer.blocks.size());
}

}  // namespace

KvLoad* KvTransfers::AddLoad(KvLoad load) {
  loads_.push_back(std::make_unique<KvLoad>(std::move(load)));
  return loads_.back().get();
}

void KvTransfers::DropLoad(const KvLoad* load) {
  std::erase_if(loads_, [&](const auto& owned) { return owned.get() == load; });
}

KvLoad* KvTransfers::FindLoad(const RequestState& request) {
  for (const auto& load : loads_) {
    if (load->request == &request) return load.get();
  }
  return nullptr;
}

void KvTransfers::Plan(KvTransfer transfer, KvLoad* load, uint64_t fence) {
  const TransferId id(++num_transfers_);
  transfer.id = id;
  if (load != nullptr) load->transfers.push_back(id);
  num_held_blocks_ += NumHeld(transfer);
  planned_.push_back(id);
  in_flight_.emplace(id, InFlight{.transfer = std::move(transfer), .load = load, .fence = fence});
}

void KvTransfers::Take(uint64_t oldest_step, std::vector<KvTransfer>* out) {
  std::erase_if(planned_, [&](TransferId id) {
    InFlight& entry = in_flight_.at(id);
    if (oldest_step <= entry.fence) return false;
    entry.taken = true;
    out->push_back(entry.transfer);
    return true;
  });
}

KvTransfers::InFlight* KvTransfers::Find(TransferId id) {
  const auto found = in_flight_.find(id);
  return found == in_flight_.end() || !found->second.taken ? nullptr : &found->second;
}

void KvTransfers::End(TransferId id) {
  const auto found = in_flight_.find(id);
  const KvTransfer& transfer = found->second.transfer;
  num_held_blocks_ -= NumHeld(transfer);
  if (found->second.abandoned) {
    const auto peer = abandoned_.find(transfer.handover.peer);
    if (--peer->second == 0) abandoned_.erase(peer);
  }
  if (found->second.load != nullptr) std::erase(found->second.load->transfers, id);
  in_flight_.erase(found);
}

bool KvTransfers::hangs(std::string_view peer) const {
  const auto found = abandoned_.find(peer);
  return found != abandoned_.end() && found->second > most_abandoned_;
}

void KvTransfers::Abandon(InFlight* entry) {
  entry->abandoned = true;
  ++abandoned_[entry->transfer.handover.peer];
}

size_t KvTransfers::num_abandoned() const {
  size_t total = 0;
  for (const auto& [peer, count] : abandoned_) total += count;
  return total;
}

Status KvTransfers::CheckIntegrity() const {
  size_t loading = 0, listed = 0, not_taken = 0, abandoned = 0;
  int32_t held = 0;
  for (const auto& [id, entry] : in_flight_) {
    const bool loads = entry.transfer.direction == KvTransfer::Direction::kLoad;
    if (loads != (entry.load != nullptr)) return Internal("transfers: a load without an owner");
    loading += loads;
    not_taken += !entry.taken;
    abandoned += entry.abandoned;
    held += NumHeld(entry.transfer);
  }
  for (const auto& load : loads_) {
    if (load->transfers.empty()) return Internal("transfers: a load that has ended is kept");
    listed += load->transfers.size();
  }
  if (loading != listed || not_taken != planned_.size() || abandoned != num_abandoned() ||
      held != num_held_blocks_) {
    return Internal("transfers: those in flight are miscounted");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler::internal
