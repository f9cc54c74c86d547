// File: cc/kv_cache/tiers/block_tier.h
// The index of a tier: which content lies in which slot of a bounded medium, and what is going on
// with it. Pure bookkeeping; the caller moves the bytes.
//
//   PAGEMILL_ASSIGN_OR_RETURN(BlockTier tier, BlockTier::Create("arc", num_slots, num_spare));
//   std::optional<BlockTier::Reservation> r = tier.Reserve(key);   // empty: busy
//   if (r->victim) ... save it elsewhere, or not ... tier.FreeSlot(r->victim->slot);
//   tier.Commit(key);                        // its bytes are there; or tier.Erase(key)
//   if (tier.state(key) == BlockTier::State::kReady) slot = tier.Pin(key);
//   tier.Unpin(key);                         // its bytes were read
//
// Of `num_slots` slots, `num_spare` hold no content in the long run: a new block can come while
// those evicted for the last ones are still being copied away.
//
// All operations are O(1) except for passing over pinned content. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_TIERS_BLOCK_TIER_H_
#define PAGEMILL_CC_KV_CACHE_TIERS_BLOCK_TIER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/tiers/content_key.h"
#include "cc/kv_cache/tiers/replacement.h"

namespace pagemill::kv_cache {

class BlockTier {
 public:
  enum class State {
    kAbsent,
    kStoring,  // reserved; its bytes are on the way
    kReady,
  };
  struct Content {
    ContentKey key;
    int64_t slot;
  };
  struct Reservation {
    int64_t slot;
    std::optional<Content> victim;  // not in the tier any more; its slot is taken until FreeSlot()
  };

  // kInvalidArgument if the policy is unknown or `num_spare` is not in [1, num_slots).
  static StatusOr<BlockTier> Create(std::string_view policy, int64_t num_slots, int64_t num_spare);

  int64_t capacity() const { return capacity_; }
  int64_t num_slots() const { return static_cast<int64_t>(taken_.size()); }
  int64_t num_resident() const { return static_cast<int64_t>(entries_.size()); }
  int64_t num_free_slots() const { return static_cast<int64_t>(free_slots_.size()); }
  State state(const ContentKey& key) const;

  // A slot for absent content. Empty if no slot is free or everything is in use.
  std::optional<Reservation> Reserve(const ContentKey& key);
  void Commit(const ContentKey& key);  // of content being stored
  // The slot of ready content, which stays until as many Unpin() calls. Counts as a use.
  int64_t Pin(const ContentKey& key);
  void Unpin(const ContentKey& key);
  // Forgets content; its slot is free at once, or with the last Unpin().
  void Erase(const ContentKey& key);
  // Forgets all content, that of stores under way too: their slots are free once they end.
  void EraseAll();
  void FreeSlot(int64_t slot);  // of a victim

  Status CheckIntegrity() const;

 private:
  struct Entry {
    int64_t slot = 0;
    bool ready = false;
    bool erased = false;  // still pinned or being stored: the slot is not free yet
    int32_t pins = 0;
  };

  BlockTier(std::unique_ptr<Replacement> policy, int64_t capacity, int64_t num_slots);
  void Drop(const ContentKey& key);

  std::unique_ptr<Replacement> policy_;
  int64_t capacity_;
  std::unordered_map<ContentKey, Entry, ContentKeyHash>
      entries_;                      // never iterated where its order would matter
  std::vector<int64_t> free_slots_;  // a stack
  std::vector<bool> taken_;          // by slot
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TIERS_BLOCK_TIER_H_
