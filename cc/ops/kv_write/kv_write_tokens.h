// File: cc/ops/kv_write/kv_write_tokens.h
// Stores a step's tokens in the KV cache: runs of consecutive tokens of a block, divided among
// threads.
//
//   context.pool->ParallelFor(tokens, KvTokensPerChunk(batch, elements_of_a_token),
//                             [&](int64_t begin, int64_t end, int) {
//     ForEachKvRun(batch, begin, end, [&](int64_t first, int32_t count) {
//       if (batch.slot_mapping[first] >= 0) StoreKvTokens(args, kernel, first, count);
//     });
//   });
#ifndef PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_TOKENS_H_
#define PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_TOKENS_H_

#include <cstdint>

#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/kv_write/kv_write_run.h"

namespace pagemill::ops {

// Tokens that are worth handing to another thread; `elements` are read or written per token.
int64_t KvTokensPerChunk(const BatchView& batch, int64_t elements);

// True if token t continues the run of token t - 1.
inline bool ContinuesKvRun(const BatchView& batch, int64_t t) {
  const int32_t slot = batch.slot_mapping[t];
  return t > 0 && slot > 0 && slot == batch.slot_mapping[t - 1] + 1 && slot % batch.block_size != 0;
}

// Calls visit(first, count) for the runs whose first token is in [begin, end), so that the chunks
// of two threads never split a run. A token that is not stored is a run of its own.
template <class Visit>
void ForEachKvRun(const BatchView& batch, int64_t begin, int64_t end, const Visit& visit) {
  int64_t t = begin;
  while (t < end && ContinuesKvRun(batch, t)) ++t;
  while (t < end) {
    int64_t next = t + 1;
    while (next < batch.num_tokens && ContinuesKvRun(batch, next)) ++next;
    visit(t, static_cast<int32_t>(next - t));
    t = next;
  }
}

// Stores tokens [first, first + count) in consecutive slots of one block.
void StoreKvTokens(const KvWriteArgs& args, const KvWriteKernel& kernel, int64_t first,
                   int32_t count);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_TOKENS_H_
