#include "cc/sim/offline_optimum.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pagemill::sim {
namespace {

using Chain = uint64_t;  // identifies a block and all before it

struct Use {
  std::vector<Chain> blocks;  // full blocks with computed tokens
  size_t num_hittable = 0;    // leading blocks that the cache could supply
  int32_t num_pages = 0;      // held by the request at its end
  uint64_t prompt_tokens = 0;
};

// Like PrefixAware's chain, over the content's segments: equal tokens have equal hashes.
void AppendChains(const std::vector<Segment>& content, int32_t end, int32_t block_size,
                  std::vector<Chain>* chains) {
  constexpr int32_t kAnyVocab = 1 << 24;
  Chain chain = 0;
  int32_t at = 0;
  for (const Segment& segment : content) {
    for (int32_t i = 0; i < segment.num_tokens && at < end; ++i) {
      const int32_t token = PseudoToken(segment.content, segment.first + i, kAnyVocab);
      chain = (chain ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
      chain ^= chain >> 32;
      if (++at % block_size == 0) chains->push_back(Mix(chain));
    }
  }
}

// The last token of an answer is never computed. No request can hit the part of an answer that the
// trace's segments do not cover.
Use UseOf(const TraceRequest& request, int32_t block_size) {
  Use use;
  const int32_t computed = request.num_prompt_tokens + request.num_output_tokens - 1;
  AppendChains(request.content, computed, block_size, &use.blocks);
  use.num_hittable = std::min(use.blocks.size(),
                              static_cast<size_t>((request.num_prompt_tokens - 1) / block_size));
  use.num_pages = (computed + block_size - 1) / block_size;
  use.prompt_tokens = static_cast<uint64_t>(request.num_prompt_tokens);
  return use;
}

constexpr size_t kNever = SIZE_MAX;

// next[i][k]: the next request that could hit block k of request i.
std::vector<std::vector<size_t>> NextUses(const std::vector<Use>& uses) {
  std::vector<std::vector<size_t>> next(uses.size());
  std::unordered_map<Chain, size_t> coming;
  for (size_t i = uses.size(); i-- > 0;) {
    const Use& use = uses[i];
    next[i].resize(use.blocks.size(), kNever);
    for (size_t k = 0; k < use.blocks.size(); ++k) {
      const auto found = coming.find(use.blocks[k]);
      if (found != coming.end()) next[i][k] = found->second;
      if (k < use.num_hittable) {
        coming[use.blocks[k]] = i;
      } else if (found != coming.end()) {
        // This request computes the block itself: an earlier copy has no further use.
        coming.erase(found);
      }
    }
  }
  return next;
}

struct Kept {
  size_t next_use;
  size_t depth;
  Chain chain;
  friend auto operator<=>(const Kept&, const Kept&) = default;
};

}  // namespace

StatusOr<PrefixHits> BestPrefixHits(std::span<const TraceRequest> trace, const CachePool& pool) {
  if (pool.block_size < 1) return InvalidArgument("block_size must be at least 1");
  std::vector<Use> uses;
  for (const TraceRequest& request : trace) {
    uses.push_back(UseOf(request, pool.block_size));
    if (uses.back().num_pages > pool.num_blocks) {
      return InvalidArgument("trace request " + std::to_string(uses.size() - 1) + " needs " +
                             std::to_string(uses.back().num_pages) + " blocks, num_blocks is " +
                             std::to_string(pool.num_blocks));
    }
  }
  const std::vector<std::vector<size_t>> next = NextUses(uses);
  PrefixHits hits;
  std::set<Kept> order;                    // the last is evicted first
  std::unordered_map<Chain, size_t> kept;  // -> its next use
  for (size_t i = 0; i < uses.size(); ++i) {
    const Use& use = uses[i];
    hits.prompt_tokens += use.prompt_tokens;
    for (size_t k = 0; k < use.blocks.size(); ++k) {
      const auto found = kept.find(use.blocks[k]);
      if (found == kept.end()) continue;
      if (k < use.num_hittable) hits.hit_tokens += static_cast<uint64_t>(pool.block_size);
      order.erase({found->second, k, use.blocks[k]});
      kept.erase(found);
    }
    while (static_cast<int32_t>(order.size()) + use.num_pages > pool.num_blocks) {
      kept.erase(std::prev(order.end())->chain);
      order.erase(std::prev(order.end()));
    }
    for (size_t k = 0; k < use.blocks.size(); ++k) {
      if (next[i][k] == kNever) continue;
      kept[use.blocks[k]] = next[i][k];
      order.insert({next[i][k], k, use.blocks[k]});
    }
  }
  return hits;
}

}  // namespace pagemill::sim
