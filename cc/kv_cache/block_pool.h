// File: cc/kv_cache/block_pool.h
// All pages of the KV cache: which are free, who refers to them, and which hold content that can be
// reused. Page 0 is the null block and never handed out.
//
// A page without references is free, but keeps its content and its hash until it is handed out
// again, so a later request with the same prefix can take it back. Free pages are handed out in
// this order:
//   1. pages without reusable content that were in use before, the latest first: their memory is
//      resident and warm, and nothing is lost;
//   2. pages that were never used, by id: they make the process larger, but taking a cached page
//      instead would throw away work while there is room;
//   3. pages whose content was superseded, in that order;
//   4. pages with other reusable content, as the eviction policy says.
// One list gives 1 and 2: released pages without a hash go to its front, and it starts with all
// pages by id.
//
// The content of one block may take several pages; they get their content's hash together and lose
// it together, references are per page.
//
//   BlockPool pool(num_blocks, "adaptive");
//   BlockId id = pool.Allocate();             // reference count 1
//   pool.Cache(id, hash, GroupId(0));   // once its content is computed
//   pool.Release(id);
//   std::optional<BlockId> hit = pool.Find(hash, GroupId(0));
//   if (hit) pool.Reuse(*hit);                // takes it out of the free pages
//
// All operations but Reset and CheckIntegrity are O(1), or O(pages of the block). Thread safety:
// none.
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_ages.h"
#include "cc/kv_cache/block_list.h"
#include "cc/kv_cache/event_log.h"
#include "cc/kv_cache/evicted_contents.h"
#include "cc/kv_cache/eviction/eviction_policy.h"
#include "cc/kv_cache/prefix_cache.h"

namespace pagemill::kv_cache {

class BlockPool {
 public:
  // `num_blocks` includes the null block. `eviction` is a name of eviction/policies.h. `events`,
  // if given, records content that is evicted; `ages`, if given, measures how old content becomes.
  // Both outlive the pool.
  BlockPool(int32_t num_blocks, std::string_view eviction, EventLog* events = nullptr,
            BlockAges* ages = nullptr);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_usable() const { return num_blocks() - 1; }
  int32_t num_free() const { return empty_.size() + num_evictable_; }
  // Blocks (not pages) with reusable content, and how many of them were evicted.
  int32_t num_cached() const { return cache_.size(); }
  int64_t num_evictions() const { return num_evictions_; }
  int32_t ref_count(BlockId id) const { return At(id).ref_count; }

  // True if a request reused the content of the page.
  bool was_reused(BlockId id) const { return At(id).reused; }

  // A free page, its former content forgotten. Only where num_free() > 0.
  BlockId Allocate();
  void AddReference(BlockId id);
  // The same, by a request that continues from the page's content.
  void Reuse(BlockId id) {
    AddReference(id);
    Block& block = At(id);
    block.branches = block.branches || block.reused;
    block.reused = block.used = true;
    block.superseded = false;
    if (IsMeasured(id)) ages_->Reused(id);
  }
  void Release(BlockId id);

  // Makes the content of pages that are in use reusable; `pages` is one block of the group. Where
  // another block has the same content already, one of the two stays cached: the other where its
  // first page is in use, else this one, which will be used later. True where it is this one, and
  // was not known before.
  bool Cache(std::span<const BlockId> pages, const BlockHash& hash, GroupId group);
  bool Cache(BlockId page, const BlockHash& hash, GroupId group) {
    return Cache(std::span(&page, 1), hash, group);
  }
  // First page of the block with that content.
  std::optional<BlockId> Find(const BlockHash& hash, GroupId group) const {
    return cache_.Find(hash, group);
  }
  // True if content with that hash was evicted lately, whatever its group.
  bool WasEvicted(const BlockHash& hash) const { return evicted_.Contains(hash); }
  // The page after `id` of a cached block with several; the first one again after the last.
  BlockId NextPage(BlockId id) const { return ring_.empty() ? id : ring_[id.value()]; }
  // `id` is the first page of a block that a later checkpoint supersedes: it stays cached, but is
  // evicted first unless it is reused. No effect on a block at which requests branch.
  void Supersede(BlockId id);
  // `id` as above: several requests will continue from its content.
  void MarkBranch(BlockId id) { At(id).branches = true; }
  // Forgets the content of the block that `id` is the first page of, if it has any.
  void Forget(BlockId id);
  // Forgets all reusable content; references stay. O(pages).
  void Reset();

  Status CheckIntegrity() const;

 private:
  Block& At(BlockId id) { return blocks_[id.value()]; }
  const Block& At(BlockId id) const { return blocks_[id.value()]; }
  // True if the page is part of a block that the cache knows.
  bool HasContent(BlockId id) const { return !At(id).hash.empty() || NextPage(id) != id; }
  BlockId FirstPage(BlockId id) const;
  // True if the page is the first one of a block whose age is measured.
  bool IsMeasured(BlockId id) const { return ages_ != nullptr && ages_->Samples(At(id).hash); }
  // A free page with content, into the list that it belongs to, and out of it.
  void InsertEvictable(BlockId id);
  void RemoveEvictable(BlockId id);
  void Clear(BlockId first);
  Status CheckAges() const;

  std::vector<Block> blocks_;
  BlockList empty_;  // free pages without content
  std::unique_ptr<EvictionPolicy> eviction_;
  BlockList superseded_;       // free pages with superseded content
  int32_t num_evictable_ = 0;  // free pages with content, those included
  PrefixCache cache_;
  // The pages of each cached block in a ring; others point at themselves. Made when the first block
  // of several pages is cached.
  std::vector<BlockId> ring_;
  EventLog* const events_;  // null: none
  BlockAges* const ages_;   // null: none
  int64_t num_evictions_ = 0;
  EvictedContents evicted_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_POOL_H_
