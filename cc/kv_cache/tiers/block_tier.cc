#include "cc/kv_cache/tiers/block_tier.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pagemill::kv_cache {

StatusOr<BlockTier> BlockTier::Create(std::string_view policy, int64_t num_slots,
                                      int64_t num_spare) {
  if (num_spare < 1 || num_spare >= num_slots) {
    return InvalidArgument("a KV tier of " + std::to_string(num_slots) +
                           " blocks is too small: it needs at least " +
                           std::to_string(num_spare + 1));
  }
  const int64_t capacity = num_slots - num_spare;
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Replacement> made, MakeReplacement(policy, capacity));
  return BlockTier(std::move(made), capacity, num_slots);
}

BlockTier::BlockTier(std::unique_ptr<Replacement> policy, int64_t capacity, int64_t num_slots)
    : policy_(std::move(policy)), capacity_(capacity), taken_(static_cast<size_t>(num_slots)) {
  for (int64_t slot = num_slots; slot-- > 0;) free_slots_.push_back(slot);
}

BlockTier::State BlockTier::state(const ContentKey& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.erased) return State::kAbsent;
  return found->second.ready ? State::kReady : State::kStoring;
}

std::optional<BlockTier::Reservation> BlockTier::Reserve(const ContentKey& key) {
  // Erased content that is still being read keeps its name until then.
  if (free_slots_.empty() || entries_.contains(key)) return std::nullopt;
  const auto may_evict = [this](const ContentKey& resident) {
    const Entry& entry = entries_.at(resident);
    return entry.ready && entry.pins == 0;
  };
  const Replacement::Admission admission = policy_->Admit(key, may_evict);
  if (!admission.admitted) return std::nullopt;
  Reservation reservation{free_slots_.back(), std::nullopt};
  free_slots_.pop_back();
  taken_[static_cast<size_t>(reservation.slot)] = true;
  if (admission.victim) {
    const auto victim = entries_.find(*admission.victim);
    reservation.victim = Content{victim->first, victim->second.slot};
    entries_.erase(victim);
  }
  entries_[key] = Entry{.slot = reservation.slot};
  return reservation;
}

void BlockTier::Commit(const ContentKey& key) {
  Entry& entry = entries_.at(key);
  PAGEMILL_CHECK(!entry.ready);
  entry.ready = true;
  if (entry.erased) Drop(key);
}

int64_t BlockTier::Pin(const ContentKey& key) {
  Entry& entry = entries_.at(key);
  PAGEMILL_CHECK(entry.ready && !entry.erased);
  ++entry.pins;
  policy_->Touch(key);
  return entry.slot;
}

void BlockTier::Unpin(const ContentKey& key) {
  Entry& entry = entries_.at(key);
  PAGEMILL_CHECK(entry.pins > 0);
  if (--entry.pins == 0 && entry.erased) Drop(key);
}

void BlockTier::Erase(const ContentKey& key) {
  Entry& entry = entries_.at(key);
  if (!entry.erased) policy_->Erase(key);
  entry.erased = true;
  if (entry.pins == 0) Drop(key);
}

void BlockTier::EraseAll() {
  std::vector<Content> all;
  for (const auto& [key, entry] : entries_) {
    if (!entry.erased) all.push_back({key, entry.slot});
  }
  // The order in which slots become free must not depend on that of the hash table.
  std::sort(all.begin(), all.end(),
            [](const Content& a, const Content& b) { return a.slot < b.slot; });
  for (const Content& content : all) {
    Entry& entry = entries_.at(content.key);
    if (entry.ready) {
      Erase(content.key);
    } else {
      policy_->Erase(content.key);
      entry.erased = true;
    }
  }
}

void BlockTier::Drop(const ContentKey& key) {
  const int64_t slot = entries_.at(key).slot;
  entries_.erase(key);
  FreeSlot(slot);
}

void BlockTier::FreeSlot(int64_t slot) {
  PAGEMILL_CHECK(taken_[static_cast<size_t>(slot)]);
  taken_[static_cast<size_t>(slot)] = false;
  free_slots_.push_back(slot);
}

Status BlockTier::CheckIntegrity() const {
  PAGEMILL_RETURN_IF_ERROR(policy_->CheckIntegrity());
  std::vector<bool> seen(taken_.size());
  const auto see = [&](int64_t slot, bool taken) {
    const auto i = static_cast<size_t>(slot);
    if (seen[i] || taken_[i] != taken) return false;
    seen[i] = true;
    return true;
  };
  for (const auto& [key, entry] : entries_) {
    if (!see(entry.slot, true)) return Internal("KV tier: a slot with two contents, or a free one");
    if (entry.pins < 0 || (entry.pins > 0 && !entry.ready)) {
      return Internal("KV tier: content is pinned that is not there");
    }
    if (entry.erased && entry.ready && entry.pins == 0)
      return Internal("KV tier: erased content keeps its slot");
  }
  for (int64_t slot : free_slots_) {
    if (!see(slot, false)) return Internal("KV tier: a free slot that is taken");
  }
  return OkStatus();
}

}  // namespace pagemill::kv_cache
