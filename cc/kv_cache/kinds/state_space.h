// File: cc/kv_cache/kinds/state_space.h
// Layers with a recurrent state of fixed size: state-space models, linear attention. A page holds a
// state, and a state stands for all tokens before it.
//
// Position i of the table is the state after token (i + 1) * block_size. A step over [begin, end)
// reads position (begin - 1) / block_size (nothing where begin = 0). It writes the state after
// `end` to position (end - 1) / block_size, and on its way the state after (i + 1) * block_size to
// every position i that is not null and whose boundary lies in (begin, end]. So no state is ever
// copied: the next step continues from a page that stays as it is.
//
// Which boundaries get a page is StateCheckpoints. With kLastBoundary it is the last one of each
// step, the last one before the end of the prompt (from which the same prompt can continue, as
// one token is always computed), and the branch, if one is known. A later checkpoint replaces one
// of the generated part, so that a long answer leaves one state behind, not one per block; one at
// the end of a chunk of the prompt, or of an earlier turn, stays only while there is room.
// With kNone the table has one position, read and written by every step.
//
// With recent_states = n > 0, n pages come before position 0: the state after t tokens lies in page
// t % n of them, except at a boundary whose position has a page. A step writes the states after its
// last n tokens, and the next step may begin after any of them. With kNone there is nothing else.
#ifndef PAGEMILL_CC_KV_CACHE_KINDS_STATE_SPACE_H_
#define PAGEMILL_CC_KV_CACHE_KINDS_STATE_SPACE_H_

#include <cstdint>

#include "cc/kv_cache/kinds/cache_kind.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::kv_cache {

using step::KvGroupOptions;
using step::StateCheckpoints;

class StateSpace final : public CacheKind {
 public:
  StateSpace(int32_t block_size, StateCheckpoints checkpoints, int32_t recent_states)
      : block_size_(block_size), checkpoints_(checkpoints), recent_states_(recent_states) {}

  int32_t NumBlocks(int32_t num_tokens, const RequestShape& shape) const override;
  bool Needs(int32_t index, TokenRange range, const RequestShape& shape) const override;
  int32_t LongestPrefix(const GroupContent& content, int32_t max_blocks) const override;
  int32_t MaxHeld(int32_t num_tokens, const RequestShape& shape,
                  const PlanBounds& bounds) const override;
  Worth WorthAfterNext(int32_t index, const RequestShape& shape) const override;
  Traits traits() const override;

 private:
  // True if other requests will look up the state after position `index`.
  bool IsLandmark(int32_t index, const RequestShape& shape) const;

  const int32_t block_size_;  // tokens from one boundary to the next
  const StateCheckpoints checkpoints_;
  const int32_t recent_states_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_KINDS_STATE_SPACE_H_
