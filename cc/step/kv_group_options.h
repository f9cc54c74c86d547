// File: cc/step/kv_group_options.h
// What one group of layers needs of the KV cache. Layers with equal needs form a group with its own
// block table; all groups take pages from the one pool.
//
//   options.groups = {{"full"}};
//   options.groups = {{.kind = "full"}, {.kind = "sliding_window", .window_tokens = 1024}};
#ifndef PAGEMILL_CC_STEP_KV_GROUP_OPTIONS_H_
#define PAGEMILL_CC_STEP_KV_GROUP_OPTIONS_H_

#include <cstdint>
#include <string>

namespace pagemill::step {

// Which recurrent states of a request get a page of their own, so that another request can go on
// from them. A state costs the same however many tokens it stands for.
enum class StateCheckpoints {
  kNone,           // one working page; the prefix cache is of no use to the model
  kEveryBoundary,  // after every block of tokens
  kLastBoundary,   // at the last full boundary of each step, and where prefixes are known to branch
};

struct KvGroupOptions {
  std::string kind = "full";  // a name of kv_cache/kinds/kinds.h
  // Tokens of one block: a multiple of the cache's block_size. 0 = the cache's.
  int32_t block_size = 0;
  // Pages of the pool that one block of the group takes, not necessarily neighbours. The group's
  // block tables have so many entries per block, one after the other.
  int32_t pages_per_block = 1;
  // sliding_window: tokens that a token sees, itself included. chunked_local: tokens of a chunk.
  // 0 with every other kind.
  int32_t window_tokens = 0;
  StateCheckpoints checkpoints = StateCheckpoints::kLastBoundary;  // state_space only
  // state_space: the states after so many of the newest tokens have pages of their own, so that a
  // request can go back by one token less when drafts are rejected. The pages come first in the
  // block table. 0 = none: the newest state lies in the page of its block. 0 with every other kind.
  int32_t recent_states = 0;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_KV_GROUP_OPTIONS_H_
