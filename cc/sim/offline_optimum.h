// File: cc/sim/offline_optimum.h
// The best prefix-cache hit rate of any eviction order for requests that run one after the other,
// with knowledge of all future requests: an upper bound for eviction policies.
//
//   PAGEMILL_ASSIGN_OR_RETURN(PrefixHits best, BestPrefixHits(trace, {.num_blocks = 1000}));
//   double rate = double(best.hit_tokens) / best.prompt_tokens;
//
// A running request holds all blocks of its tokens; the rest of the pool may keep blocks of earlier
// requests. The block whose next useful use is farthest is evicted first (L. A. Belady, IBM Systems
// Journal 5(2), 1966), a block without one at once. This is the maximum:
//
// - A hit saves the same for every block, and a block that is kept between two uses takes one page
//   in between. Choosing blocks to keep is choosing a largest set of intervals such that at no
//   point more of them overlap than pages are free; wherever too many overlap, dropping the one
//   that ends last is optimal for any number of free pages at each point.
// - This problem is easier than the real one: it does not require that the blocks before a hit are
//   present too. But the solution has that property. Each use of a block is a use of its
//   predecessor in the chain, so the predecessor's next use is never later; among equals the deeper
//   block is dropped first. So a scheduler could do the same: the bound is attainable.
// - A use is useful if the scheduler can read the cache: at least one token of a prompt is
//   computed, and only full blocks are found.
//
// O(blocks of all requests * log). Tokens are those of TraceWorkload.
#ifndef PAGEMILL_CC_SIM_OFFLINE_OPTIMUM_H_
#define PAGEMILL_CC_SIM_OFFLINE_OPTIMUM_H_

#include <cstdint>
#include <span>

#include "cc/base/status.h"
#include "cc/sim/trace_workload.h"

namespace pagemill::sim {

struct CachePool {
  int32_t num_blocks = 0;   // usable by requests: without the null block
  int32_t block_size = 16;  // tokens
};

struct PrefixHits {
  uint64_t prompt_tokens = 0;
  uint64_t hit_tokens = 0;
};

// Runs the trace in order, ignoring times and sessions. kInvalidArgument if a request needs more
// blocks than there are.
StatusOr<PrefixHits> BestPrefixHits(std::span<const TraceRequest> trace, const CachePool& pool);

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_OFFLINE_OPTIMUM_H_
