// File: cc/kv_cache/request_blocks.h
// What one request holds of the KV cache: a block table per group. Owned by the owner of the
// request, changed by the KvCacheManager only; must be freed with KvCacheManager::Free before it is
// destroyed.
#ifndef PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_
#define PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/kv_cache/block.h"
#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

class RequestBlocks {
 public:
  RequestBlocks() = default;  // of a request without media, whose prompt is not known
  explicit RequestBlocks(const step::Request& request) {
    shape_.prompt_tokens = static_cast<int32_t>(request.prompt_token_ids.size());
    for (const step::MediaItem& item : request.media) shape_.media_tokens += item.num_tokens;
  }

  // The known tokens became part of the prompt, or input was appended to it; no blocks are held.
  // Hashes stay: they are those of full blocks, which do not change.
  void GrowPrompt(int32_t num_tokens, int32_t num_media_tokens) {
    shape_.prompt_tokens += num_tokens;
    shape_.media_tokens += num_media_tokens;
    shape_.branch_tokens = 0;
  }

  // One block table per group, pages_per_block entries per block, after the pages of its
  // recent_states; empty while the request holds nothing. The null block stands where the request
  // holds no page (any more). A runner may keep what stood there before: nothing reads it.
  const std::vector<std::vector<BlockId>>& groups() const { return groups_; }
  bool empty() const { return groups_.empty(); }
  // Hashes of the leading full blocks of the known tokens, as far as the cache has computed them.
  // They stay when the blocks are freed.
  std::span<const BlockHash> hashes() const { return hashes_; }
  // Where the same tokens are cached for the groups without checkpoints, but no state is: a state
  // is kept when the request comes by, for the next one. 0 = nowhere.
  int32_t branch_tokens() const { return shape_.branch_tokens; }

  // Leading tokens that the prefix cache knows to be computed or loaded.
  int32_t num_committed_tokens() const { return num_committed_tokens_; }

 private:
  friend class KvCacheManager;

  // In blocks of the group.
  struct Progress {
    int32_t first_held = 0;       // all before it were freed, or never held
    int32_t num_held = 0;         // positions that are not null, the leading pages among them
    int32_t last_checkpoint = 0;  // length of the prefix whose state was cached last; 0 = none
  };

  RequestShape shape_;
  std::vector<std::vector<BlockId>> groups_;
  std::vector<Progress> progress_;  // per group
  // Hash chain over the leading full blocks of the known tokens, as far as the cache has computed
  // it. It depends on the tokens only, so it survives Free().
  std::vector<BlockHash> hashes_;
  int32_t num_covered_tokens_ = 0;    // for so many tokens no further block is needed
  int32_t num_committed_tokens_ = 0;  // whose content the prefix cache knows
  uint64_t generation_ = 0;           // of the cache, when the first block was taken
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_REQUEST_BLOCKS_H_
