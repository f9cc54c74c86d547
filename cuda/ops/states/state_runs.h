// File: cuda/ops/states/state_runs.h
// Pages of recurrent states (cc/ops/states/state_pages.h), for kernels.
//
//   PAGEMILL_KERNEL Scan(..., StepTokens batch) {
//     ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
//       Load(run.source);                          // zeros if it is kNullPage
//       Advance(/*rows=*/run.begin, run.end);
//       if (run.target != ops::kNullPage) Store(run.target);
//     });
//   }
//   ...
//   Launch(stream, shape, Scan, ..., StepTokensOf(*call.batch));
//
// The target is the null page for padding requests alone.
#ifndef PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_
#define PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_

#include <cstdint>

#include "cc/ops/states/state_pages.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// The page of the state after `tokens` > 0 tokens, where a step begins or ends.
PAGEMILL_DEVICE int32_t PageAfter(const StepTokens& batch, const int32_t* table, int32_t tokens) {
  const int32_t page = table[batch.recent_states + (tokens - 1) / batch.block_size];
  const bool at_boundary = tokens % batch.block_size == 0 && page != ops::kNullPage;
  return batch.recent_states == 0 || at_boundary ? page : table[tokens % batch.recent_states];
}

template <typename Visit>
PAGEMILL_DEVICE void ForEachStateRun(const StepTokens& batch, int64_t request,
                                     const Visit& visit) {
  const int32_t* const table = batch.data + request * batch.table_stride;
  const int32_t size = batch.block_size, last_row = batch.query_start[request + 1];
  // The rows before this one need a state only at boundaries.
  const int32_t first_kept = last_row - (batch.recent_states > 1 ? batch.recent_states : 1);
  ops::StateRun run;
  run.end = batch.query_start[request];
  int32_t position = batch.seq_lens[request] - (last_row - run.end);  // of the token in row run.end
  if (position > 0) run.target = PageAfter(batch, table, position);
  while (run.end < last_row) {
    run = {run.target, ops::kNullPage, run.end, run.end};
    while (run.end < last_row && run.target == ops::kNullPage) {
      const int32_t next_kept = (first_kept > run.end ? first_kept - run.end : 0) + 1;
      const int32_t in_page = size - position % size;
      const int32_t count = next_kept < in_page ? next_kept : in_page;
      position += count;
      run.end += count;
      if (run.end > first_kept) {
        run.target = PageAfter(batch, table, position);
      } else if (position % size == 0) {
        run.target = table[batch.recent_states + position / size - 1];
      }
    }
    visit(run);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_
