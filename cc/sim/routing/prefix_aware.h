// File: cc/sim/routing/prefix_aware.h
// Selects the engine that last received the longest prefix of the prompt, unless it is much busier
// than the least loaded one, which then gets the request. The idea is that of SGLang's cache-aware
// router (its sgl-router README); here a hash table replaces the prefix tree.
//
// A prompt is a chain of blocks of kBlockTokens tokens; the table stores, for the hash of each
// chain, the engine that received it last. It has a fixed size, and newer entries replace older
// ones in the same place; a wrong entry only costs cache hits. O(prompt + engines).
#ifndef PAGEMILL_CC_SIM_ROUTING_PREFIX_AWARE_H_
#define PAGEMILL_CC_SIM_ROUTING_PREFIX_AWARE_H_

#include <vector>

#include "cc/sim/routing/least_loaded.h"
#include "cc/sim/routing/routing_policy.h"

namespace pagemill::sim {

class PrefixAware final : public RoutingPolicy {
 public:
  static constexpr int32_t kBlockTokens = 64;
  // An engine is too busy for a prefix if it has more than kSlack requests and more than 1.5 times
  // as many as the least loaded one.
  static constexpr int32_t kSlack = 8;

  // 8 bytes per entry; some 4,096 entries per engine, and at most 2^24.
  explicit PrefixAware(int32_t num_engines);

  int32_t Route(std::span<const int32_t> prompt, std::span<const int32_t> loads) override;

 private:
  struct Entry {
    uint32_t tag = 0;  // bits of the hash that are not its place
    int32_t engine = -1;
  };
  Entry* At(uint64_t hash) { return &entries_[hash & (entries_.size() - 1)]; }
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  LeastLoaded fallback_;
  std::vector<Entry> entries_;  // a power of two
  std::vector<uint64_t> chain_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ROUTING_PREFIX_AWARE_H_
