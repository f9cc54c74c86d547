// File: cc/ops/batch_view.h
// One step's batch as flat int32 arrays, the form in which kernels see it. Built by
// runner/batch_state from a StepPlan; borrowed, valid for one execution.
//
// Requests are numbered 0..num_requests-1 in batch order; their tokens are contiguous.
//
//   request r runs tokens [query_start[r], query_start[r + 1]); after the step it has seq_lens[r]
//   tokens of context, so its first new token has position seq_lens[r] - (number of new tokens).
//   Token position p of request r lives in block block_table[r * block_table_stride + p /
//   block_size] at offset p % block_size; slot = block * block_size + offset.
#ifndef PAGEMILL_CC_OPS_BATCH_VIEW_H_
#define PAGEMILL_CC_OPS_BATCH_VIEW_H_

#include <cstdint>

namespace pagemill::ops {

struct BatchView {
  int32_t num_tokens = 0;       // T
  int32_t num_requests = 0;     // R
  int32_t num_logits_rows = 0;  // L
  int32_t block_size = 16;      // tokens per KV block
  // Leading entries of the block table that are the same for all requests, and whose tokens earlier
  // steps have stored. 0 where it is not known.
  int32_t num_common_blocks = 0;
  // Not 0: of each row of logits only the largest of its first so many columns is wanted, and the
  // lowest column that has it. Who computes logits may then leave them out (program/executor.h).
  int32_t argmax_columns = 0;
  const int32_t* token_ids = nullptr;     // [T]
  const int32_t* positions = nullptr;     // [T]
  const int32_t* slot_mapping = nullptr;  // [T]
  const int32_t* query_start = nullptr;   // [R + 1]
  const int32_t* seq_lens = nullptr;      // [R]
  const int32_t* block_table = nullptr;   // [R, block_table_stride]
  int64_t block_table_stride = 0;
  const int32_t* logits_rows = nullptr;  // [L] indices into the T tokens, ascending
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BATCH_VIEW_H_
