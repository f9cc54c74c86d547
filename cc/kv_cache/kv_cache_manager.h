// File: cc/kv_cache/kv_cache_manager.h
// Gives requests the blocks they need for a step, finds cached prefixes, and remembers what was
// computed.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto owned, KvCacheManager::Create(options));
//   KvCacheManager& cache = *owned;
//   RequestBlocks blocks;                                       // of one request
//   PrefixMatch match = cache.FindPrefix(request, tokens, &blocks);
//   if (!cache.CanAllocate(blocks, &match, num_tokens)) ...     // wait, or preempt a request
//   PAGEMILL_RETURN_IF_ERROR(
//       cache.Allocate(num_tokens, &match, &blocks, &plan_entry.new_block_ids));
//   ... the step runs ...
//   cache.Commit(request, tokens, num_computed_tokens, &blocks);
//   cache.Free(&blocks);
//
// KV that comes from elsewhere is loaded into blocks of a request before the request runs:
//
//   PrefixMatch match = cache.FindPrefix(...);
//   PrefixQuery query = cache.AskFor(request, tokens, num_tokens, match, &blocks);
//   ... the other place says how much of that it has ...
//   PAGEMILL_RETURN_IF_ERROR(cache.AllocateForLoad(num_tokens, &match, &blocks));
//   cache.Contents(blocks, match.num_tokens, num_tokens, &contents);   // to load, and into which
//   ... some of it arrives, or all ...
//   cache.Commit(request, tokens, num_arrived_tokens, &blocks);
//   cache.TruncateComputed(num_arrived_tokens, &blocks) || Free, and start over
//
// and what is to be stored elsewhere is held while it is read:
//
//   cache.Contents(blocks, begin, end, &contents);  cache.Hold(ids);  ...  cache.Unhold(ids);
//
// A mistake of the caller is a status, or has the effect that the function documents; it changes
// nothing else. RequestBlocks belong to one cache: to use them with another is undefined.
//
// Nothing is allocated that the step does not use, and only computed tokens enter the prefix cache.
// At most num_tokens - 1 tokens are found, so that there is always one to compute.
//
// Cost: Allocate and Free O(blocks concerned), Commit O(blocks filled), FindPrefix O(full blocks),
// with each block of a request hashed once in its life. Thread safety: none.
//
// Implemented in kv_cache_{lookup,allocation,commit,transfer,integrity}.cc by concern.
#ifndef PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_
#define PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/kv_cache/block_ages.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/block_pool.h"
#include "cc/kv_cache/event_log.h"
#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/kv_cache/prefix_query.h"
#include "cc/kv_cache/request_blocks.h"
#include "cc/kv_cache/transfer.h"
#include "cc/step/request.h"
#include "cc/step/token_sequence.h"

namespace pagemill::kv_cache {

// A cached prefix of a request. Holds no references: valid until the cache changes.
struct PrefixMatch {
  int32_t num_tokens = 0;
  std::vector<std::vector<BlockId>> groups;  // the block tables, as in RequestBlocks::groups()
  int32_t num_blocks = 0;                    // pages in them, and how many of those are free
  int32_t num_free_blocks = 0;
};

// Grows from 1; unique in one cache.
using PinId = StrongId<struct PinIdTag, uint64_t>;

class KvCacheManager {
 public:
  // kInvalidArgument if the options make no sense.
  static StatusOr<std::unique_ptr<KvCacheManager>> Create(const KvCacheOptions& options);
  // For options whose Validate() returned OK; with others it aborts.
  explicit KvCacheManager(const KvCacheOptions& options);

  const KvCacheOptions& options() const { return options_; }
  // True if the options enable prefix caching and the kinds of the groups support it.
  bool caches_prefixes() const { return caching_; }
  int32_t num_usable_blocks() const { return pool_.num_usable(); }
  int32_t num_free_blocks() const { return pool_.num_free(); }
  int32_t num_cached_blocks() const { return pool_.num_cached(); }
  int64_t num_evictions() const { return pool_.num_evictions(); }
  // Blocks that a request can count on when it is alone: all but those that may be pinned.
  int32_t num_request_blocks() const { return pool_.num_usable() - options_.max_pinned_blocks; }
  // Prefixes are found, and can be loaded, in multiples of so many tokens.
  int32_t prefix_grain_tokens() const { return prefix_grain_; }
  // Most pages that a request with that many tokens in the cache holds at a time, and how many more
  // than it has now `blocks` may come to hold for that.
  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape = {}) const;
  int32_t NumMissingBlocks(const RequestBlocks& blocks, int32_t num_tokens) const;

  // The longest cached prefix; empty if prefix caching is off, or if `blocks` holds blocks already.
  PrefixMatch FindPrefix(const step::Request& request, const step::TokenSequence& tokens,
                         RequestBlocks* blocks);

  // Tokens directly behind `match` that FindPrefix() looked for and whose KV was evicted lately.
  // O(their blocks).
  int32_t NumEvictedTokens(const RequestBlocks& blocks, const PrefixMatch& match) const;

  // True if `blocks` has room for `num_tokens` tokens as it is.
  static bool Covers(const RequestBlocks& blocks, int32_t num_tokens) {
    return num_tokens <= blocks.num_covered_tokens_;
  }
  // Can `blocks` be extended to `num_tokens` tokens, and leave `num_reserved_blocks` free? Where
  // they are empty: is there room to get there in any number of steps? `match` is null, or what
  // FindPrefix() just gave.
  bool CanAllocate(const RequestBlocks& blocks, const PrefixMatch* match, int32_t num_tokens,
                   int32_t num_reserved_blocks = 0) const;
  // Extends `blocks`, first by the match, which counts only if they are empty. Appends what is new
  // to `new_block_ids`, one list per group; it stays empty if nothing is new. kResourceExhausted,
  // and nothing happens, if too few blocks are free: CanAllocate() would have told.
  // kInvalidArgument if the match has more than `num_tokens` tokens.
  Status Allocate(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks,
                  std::vector<std::vector<BlockId>>* new_block_ids) {
    if (Covers(*blocks, num_tokens)) return OkStatus();
    return Extend(num_tokens, match, blocks, new_block_ids);
  }
  // The same, for tokens that are loaded instead of computed: only what a step needs that goes on
  // after them. No plan tells the runner; the request's first plan must have all of groups().
  // kInvalidArgument if `num_tokens` is not a multiple of prefix_grain_tokens(),
  // kFailedPrecondition if `blocks` holds blocks already, kResourceExhausted if too few are free.
  Status AllocateForLoad(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks);
  // The first `num_computed_tokens` of `tokens` are in the cache, computed or loaded: full blocks
  // may be reused, and what no later step needs is freed. Of tokens that `blocks` does not cover,
  // or that `tokens` lacks, none counts.
  void Commit(const step::Request& request, const step::TokenSequence& tokens,
              int32_t num_computed_tokens, RequestBlocks* blocks) {
    // Most calls end here: a decode step fills no block.
    if (num_computed_tokens < blocks->num_committed_tokens_ + options_.block_size) return;
    if (!blocks->empty()) CommitFilled(request, tokens, num_computed_tokens, blocks);
  }
  // Gives all blocks back, the last one first, so that the end of a prefix is evicted before its
  // start.
  void Free(RequestBlocks* blocks);

  // Frees what only tokens from `num_tokens` on use; they are computed, or loaded, again.
  // No step is in flight. False if the request cannot continue there: `num_tokens` is not a
  // multiple of prefix_grain_tokens(), or a group has freed or overwritten what that takes. Then
  // the caller must Free() and start over.
  bool TruncateComputed(int32_t num_tokens, RequestBlocks* blocks);

  // The hash chain over the full blocks of block_size among the first `num_tokens` tokens, as far
  // as there are so many. Valid until `blocks` changes.
  std::span<const BlockHash> Hashes(const step::Request& request, const step::TokenSequence& tokens,
                                    int32_t num_tokens, RequestBlocks* blocks);
  // What comes behind `match` of the full blocks among the first `num_tokens` tokens. Valid until
  // `blocks` changes.
  PrefixQuery AskFor(const step::Request& request, const step::TokenSequence& tokens,
                     int32_t num_tokens, const PrefixMatch& match, RequestBlocks* blocks);
  // Appends what the request holds of the full blocks in the tokens [begin, end), in the order of
  // the sequence: one entry per page; if a block of a group has several, they follow one another
  // with equal hashes. Nothing if a group's content is of use to its request only. Stops at the end
  // of blocks.hashes().
  void Contents(const RequestBlocks& blocks, int32_t begin, int32_t end,
                std::vector<BlockContent>* contents) const;
  // The same of what is cached of these tokens, whether or not the request still holds it: windows
  // give blocks back as soon as they are computed. Of what no request holds only as much as leaves
  // a quarter of the pool free, since it is held while it is read.
  void CachedContents(const RequestBlocks& blocks, int32_t begin, int32_t end,
                      std::vector<BlockContent>* contents) const;

  // Keeps blocks that a request holds, and their content, until Unhold(), whatever becomes of the
  // request: a transfer reads or writes them. Calls count. kInvalidArgument, and nothing happens,
  // if one of them is not a block of this cache, or is not held.
  Status Hold(std::span<const BlockId> ids);
  Status Unhold(std::span<const BlockId> ids);
  // Keeps whatever is cached under `hashes` from being evicted, until Unpin(). kNotFound if it
  // is nothing, kResourceExhausted above max_pinned_blocks (a block counts once per pin).
  StatusOr<PinId> Pin(std::span<const BlockHash> hashes);
  // False if there is no such pin.
  bool Unpin(PinId id);
  int32_t num_pinned_blocks() const { return num_pinned_blocks_; }

  // Appends, per group, how many leading blocks all requests that hold blocks have in common; the
  // caller is one of them. Counts only what is computed; 0 for groups that give blocks back early.
  // O(1) except for blocks that became common since the last call.
  void NumCommonPrefixBlocks(const RequestBlocks& blocks, std::vector<int32_t>* counts);

  // What came and went; null if max_events is 0. Others may append events of their own media.
  EventLog* events() { return events_.get(); }
  // How old content becomes; null if block_age_sample is 0. The host sets its time.
  BlockAges* block_ages() { return ages_.get(); }

  // Forgets all cached prefixes and pins. False, and nothing happens, while requests hold blocks.
  bool Reset();
  bool CanReset() const { return num_holders_ == 0; }
  // The same while requests hold blocks: they keep them and may go on, but nothing they hold or
  // compute is found by others before they Free() it and start again.
  void ForgetContent();

  // Invariants of the parts, and reference counts against `holders`, all that hold blocks.
  // O(blocks).
  Status CheckIntegrity(std::span<const RequestBlocks* const> holders) const;

 private:
  struct Group {
    GroupId id;
    std::unique_ptr<CacheKind> kind;
    CacheKind::Traits traits;
    int32_t block_tokens;
    int32_t stride;  // blocks of the cache's size in one of the group's
    int32_t pages;   // of one block
    // Leading blocks known to be common to all that hold blocks; more may be.
    int32_t num_common = 0;
  };
  using Tables = std::vector<std::vector<BlockId>>;

  std::span<const BlockId> PagesAt(const Group& group, const std::vector<BlockId>& table,
                                   int32_t index) const {
    return std::span(table).subspan(EntryOf(group, index), static_cast<size_t>(group.pages));
  }
  // The first entry of position `index` in a table of the group.
  static size_t EntryOf(const Group& group, int32_t index) {
    return static_cast<size_t>((group.traits.num_leading + index) * group.pages);
  }
  // Positions of a table that is not empty.
  static int32_t Length(const Group& group, const std::vector<BlockId>& table) {
    return static_cast<int32_t>(table.size()) / group.pages - group.traits.num_leading;
  }
  // The cached block with the content of table position `index`.
  std::optional<BlockId> Find(const Group& group, int32_t index,
                              const RequestBlocks& blocks) const {
    const auto last = static_cast<size_t>((index + 1) * group.stride - 1);
    return pool_.Find(blocks.hashes_[last], group.id);
  }
  int32_t MaxHeld(const Group& group, int32_t num_tokens, const RequestShape& shape) const;

  // kv_cache_lookup.cc
  void ExtendHashes(const step::Request& request, const step::TokenSequence& tokens,
                    int32_t num_blocks, RequestBlocks* blocks);
  void FillMatch(const RequestBlocks& blocks, PrefixMatch* match) const;

  // kv_cache_allocation.cc
  int32_t NumNewPages(const RequestBlocks& blocks, const PrefixMatch* match,
                      TokenRange range) const;
  Status CheckRoom(const RequestBlocks& blocks, const PrefixMatch* match, TokenRange range) const;
  Status Extend(int32_t num_tokens, const PrefixMatch* match, RequestBlocks* blocks,
                Tables* new_block_ids);
  void Begin(const PrefixMatch* match, RequestBlocks* blocks);
  void Grow(const Group& group, TokenRange range, RequestBlocks* blocks,
            std::vector<BlockId>* added);
  void GiveBack(const Group& group, int32_t index, RequestBlocks* blocks);
  void GiveBackLeading(const Group& group, RequestBlocks* blocks);

  // kv_cache_commit.cc
  void CommitFilled(const step::Request& request, const step::TokenSequence& tokens,
                    int32_t num_computed_tokens, RequestBlocks* blocks);
  void CacheFilled(const step::Request& request, const step::TokenSequence& tokens,
                   const Group& group, int32_t num_computed_tokens, RequestBlocks* blocks);
  void AppendStored(const step::Request& request, const step::TokenSequence& tokens,
                    const Group& group, TokenRange range, const RequestBlocks& blocks);
  void GiveBackUnneeded(const Group& group, int32_t num_computed_tokens, RequestBlocks* blocks);
  void DropSuperseded(const Group& group, int32_t num_blocks, RequestBlocks* blocks);
  int32_t NumHolders(BlockId id) const;  // requests only

  // kv_cache_transfer.cc
  TokenRange HashedBlocks(const RequestBlocks& blocks, int32_t begin, int32_t end) const;

  // kv_cache_integrity.cc
  Status CheckHolder(const RequestBlocks& holder, std::vector<int32_t>* refs) const;

  const KvCacheOptions options_;
  const std::unique_ptr<EventLog> events_;  // null: none
  const std::unique_ptr<BlockAges> ages_;   // null: none
  BlockPool pool_;
  BlockHasher hasher_;
  std::vector<Group> groups_;
  std::vector<PrefixQuery::Group> query_groups_;  // those whose prefixes nest come first
  int32_t prefix_grain_ = 1;                      // tokens; common multiple of the groups' blocks
  bool cacheable_ = true;                         // do prefixes make sense with all groups?
  bool caching_ = false;                          // and is the prefix cache on?
  bool checkpoints_ = false;                      // is there a group with checkpoints?
  uint64_t generation_ = 0;                       // number of ForgetContent() calls
  int32_t num_holders_ = 0;                       // RequestBlocks that are not empty

  // References that no request has: of holds and pins.
  std::unordered_map<BlockId, int32_t> held_;
  std::map<PinId, std::vector<BlockId>> pins_;
  int32_t num_pinned_blocks_ = 0;
  uint64_t num_pins_ = 0;  // ever
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KV_CACHE_MANAGER_H_
