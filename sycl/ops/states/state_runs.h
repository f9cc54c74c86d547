// File: sycl/ops/states/state_runs.h
// Pages of recurrent states (cc/ops/states/state_pages.h). Kernel text only.
//
//   ForEachStateRun(p.batch, request, [&](const StateRun& run) {
//     Load(run.source);                          // zeros if it is kNullPage
//     Advance(/*rows=*/run.begin, run.end);
//     if (run.target != kNullPage) Store(run.target);
//   });
//
// The target is the null page for padding requests alone.
#ifndef PAGEMILL_SYCL_OPS_STATES_STATE_RUNS_H_
#define PAGEMILL_SYCL_OPS_STATES_STATE_RUNS_H_

#include "sycl/ops/kernel.h"

namespace pagemill::sycl {

inline constexpr int32_t kNullPage = 0;

// Tokens between two stored states.
struct StateRun {
  int32_t source, target;  // pages
  int32_t begin, end;      // rows of the step
};

// The page of the state after `tokens` > 0 tokens, where a step begins or ends.
inline int32_t PageAfter(const StepTokens& batch, const int32_t* table, int32_t tokens) {
  const int32_t page = table[batch.recent_states + (tokens - 1) / batch.block_size];
  const bool at_boundary = tokens % batch.block_size == 0 && page != kNullPage;
  return batch.recent_states == 0 || at_boundary ? page : table[tokens % batch.recent_states];
}

template <typename Visit>
inline void ForEachStateRun(const StepTokens& batch, int64_t request, const Visit& visit) {
  const int32_t* table = batch.block_table + request * batch.table_stride;
  const int32_t size = batch.block_size, last_row = batch.query_start[request + 1];
  // The rows before this one need a state only at boundaries.
  const int32_t first_kept = last_row - ::sycl::max(1, batch.recent_states);
  StateRun run{kNullPage, kNullPage, 0, batch.query_start[request]};
  int32_t position = batch.seq_lens[request] - (last_row - run.end);  // of the token in row run.end
  if (position > 0) run.target = PageAfter(batch, table, position);
  while (run.end < last_row) {
    run = {run.target, kNullPage, run.end, run.end};
    while (run.end < last_row && run.target == kNullPage) {
      const int32_t next_kept = ::sycl::max(first_kept - run.end, 0) + 1;
      const int32_t count = ::sycl::min(next_kept, size - position % size);
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

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STATES_STATE_RUNS_H_
