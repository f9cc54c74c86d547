#include "cc/kv_cache/kinds/full.h"

#include <optional>

namespace pagemill::kv_cache {

void FullAttention::FindPrefix(std::span<const BlockHash> hashes, GroupId group,
                               const BlockPool& pool, std::vector<BlockId>* found) const {
  for (const BlockHash& hash : hashes) {
    const std::optional<BlockId> block = pool.Find(hash, group);
    if (!block) return;
    found->push_back(*block);
  }
}

}  // namespace pagemill::kv_cache
