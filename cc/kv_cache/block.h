// File: cc/kv_cache/block.h
// Bookkeeping of one page of the KV pool: who uses it, what it holds, and its place in the free
// list. 48 bytes a block; the page itself lives with the runner.
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_H_

#include <cstdint>

#include "cc/kv_cache/block_hash.h"
#include "cc/step/page_store.h"
#include "cc/step/request.h"

namespace pagemill::kv_cache {

using step::BlockId;
using step::GroupId;
using step::kNullBlock;

struct Block {
  BlockHash hash;                 // of the content, while the prefix cache knows it; else empty
  int32_t ref_count = 0;          // holders of the page; 0 = it is free
  BlockId prev, next;             // neighbours in the list of free pages that it is in
  GroupId group;                  // whose content `hash` names
  bool reused : 1 = false;        // another request reused the content
  bool used : 1 = false;          // computed or reused, and the eviction policy did not see it yet
  bool branches : 1 = false;      // several did, or are known to come
  bool superseded : 1 = false;    // there is better than the content: it goes first
  bool is_protected : 1 = false;  // of the eviction policy
};
static_assert(sizeof(Block) == 48);

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_H_
