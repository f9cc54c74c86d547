// File: cc/kv_cache/kinds/cache_kind.h
// What the layers of one group need of the cache, as a function of how far a request is. One
// implementation per kind; kinds.cc has the table.
//
// The group's part of a request is a table of blocks. Some positions of the table hold pages, the
// others are the null block: nothing reads or writes them any more, or ever.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_

#include <cstdint>
#include <limits>
#include <span>

#include "cc/kv_cache/block.h"
#include "cc/kv_cache/block_hash.h"

namespace pagemill::kv_cache {

// What a kind may know about a request.
struct RequestShape {
  int32_t prompt_tokens = 0;
  int32_t media_tokens = 0;  // outputs of encoders, all media items together
  // Another request is known to have the same tokens up to here, and others after; 0 = none.
  int32_t branch_tokens = 0;
};

// The tokens [begin, end) of a step. begin == end: whatever step comes next, from `begin` on.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// How much of one request may be planned without a result.
struct PlanBounds {
  int32_t step_tokens = 0;  // of one step; 0 = no bound
  int32_t steps = 1;
};

// Where contents are: the pool, a tier.
class ContentFinder {
 public:
  virtual ~ContentFinder() = default;
  virtual bool Has(const BlockHash& hash, GroupId group) const = 0;
};

// The hashes of a group's blocks, and where to look for them.
class GroupContent {
 public:
  // `grain_hashes` are those of the cache's blocks, of which `stride` make one of the group. Of the
  // first `num_there` of them the group has what it needs.
  GroupContent(std::span<const BlockHash> grain_hashes, int32_t stride, GroupId group,
               const ContentFinder& finder, int32_t num_there = 0)
      : hashes_(grain_hashes),
        stride_(static_cast<size_t>(stride)),
        group_(group),
        finder_(finder),
        num_there_(static_cast<size_t>(num_there)) {}

  bool Has(int32_t index) const {
    const size_t end = (static_cast<size_t>(index) + 1) * stride_;
    return end <= num_there_ || finder_.Has(hashes_[end - 1], group_);
  }

 private:
  std::span<const BlockHash> hashes_;
  size_t stride_;
  GroupId group_;
  const ContentFinder& finder_;
  size_t num_there_;
};

// Obligations of an implementer:
// 1. All functions depend on their arguments only.
// 2. NumBlocks(), the length of the table of a request with that many tokens, never shrinks as the
//    number of tokens grows.
// 3. Needs() says whether the step reads or writes table position `index`. What no step from some
//    token on needs, none from a later token on does.
// 4. LongestPrefix() returns the largest number of blocks, at most `max_blocks`, after which a
// request
//    can go on when the content says so: all positions that the next step Needs() are there.
class CacheKind {
 public:
  virtual ~CacheKind() = default;
  virtual int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const = 0;
  virtual bool Needs(int32_t index, TokenRange range, const RequestShape& shape) const = 0;
  virtual int32_t LongestPrefix(const GroupContent& content, int32_t max_blocks) const = 0;

  // Most positions that hold pages at a time, the leading ones included.
  virtual int32_t MaxHeld(int32_t num_tokens, const RequestShape& shape,
                          const PlanBounds& bounds) const {
    static_cast<void>(bounds);
    return NumBlocks(num_tokens, shape);
  }
  // What is the content of a position worth to others once the request has a later checkpoint?
  enum class Worth {
    kNothing,  // no request is expected to look it up
    kLittle,   // some request might
    kAll,      // as much as before
  };
  virtual Worth WorthAfterNext(int32_t index, const RequestShape& shape) const {
    static_cast<void>(index), static_cast<void>(shape);
    return Worth::kAll;
  }

  struct Traits {
    bool cacheable = true;      // false: the content is of use to its request only
    bool prefixes_nest = true;  // if n blocks can be reused, so can any fewer
    bool truncates = true;      // can continue at the end of a block whose position is still held
    bool checkpoints = false;  // content exists only at requested boundaries (branch_tokens)
    // Pages in front of the table's positions that a request holds from its first block to its end:
    // of use to it only.
    int32_t num_leading = 0;
    // Newest tokens that the next step may run again, as it does when drafts were rejected.
    int32_t max_rejected_tokens = std::numeric_limits<int32_t>::max();
  };
  virtual Traits traits() const { return {}; }
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_CACHE_KIND_H_
