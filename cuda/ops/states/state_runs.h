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

// The runs of a request in order, or parts of them, for kernels that look ahead.
class StateRuns {
 public:
  PAGEMILL_DEVICE StateRuns(const StepTokens& batch, int64_t request)
      : batch_(batch),
        table_(batch.data + request * batch.table_stride),
        last_row_(batch.query_start[request + 1]),
        first_kept_(last_row_ - (batch.recent_states > 1 ? batch.recent_states : 1)) {
    run_.end = batch.query_start[request];
    position_ = batch.seq_lens[request] - (last_row_ - run_.end);
    page_ = position_ / batch.block_size;
    left_in_page_ = batch.block_size - position_ % batch.block_size;
    if (position_ > 0) run_.target = PageAfter(batch, table_, position_);
  }

  // What Next() found: rows [end of the one before, end). Before that, the state that the request
  // begins with is the target.
  PAGEMILL_DEVICE const ops::StateRun& run() const { return run_; }

  // False if there are no further rows. A run of more rows than `most` has a first part of as many,
  // whose target is the null page, and so on; the source of the next part is then the null page.
  PAGEMILL_DEVICE bool Next(int32_t most) {
    if (run_.end >= last_row_) return false;
    run_ = {run_.target, ops::kNullPage, run_.end, run_.end};
    const int32_t end = last_row_ - run_.end > most ? run_.end + most : last_row_;
    while (run_.end < end && run_.target == ops::kNullPage) {
      int32_t count = (first_kept_ > run_.end ? first_kept_ - run_.end : 0) + 1;
      if (count > left_in_page_) count = left_in_page_;
      if (count > end - run_.end) count = end - run_.end;
      position_ += count;
      run_.end += count;
      left_in_page_ -= count;
      if (run_.end > first_kept_) {
        run_.target = PageAfter(batch_, table_, position_);
      } else if (left_in_page_ == 0) {
        run_.target = table_[batch_.recent_states + page_];
      }
      if (left_in_page_ > 0) continue;
      left_in_page_ = batch_.block_size;
      ++page_;
    }
    return true;
  }

 private:
  const StepTokens& batch_;
  const int32_t* const table_;
  const int32_t last_row_;
  const int32_t first_kept_;  // the rows before this one need a state only at boundaries
  // Position of the token in row run_.end, its page, and the tokens of that from it on.
  int32_t position_, page_, left_in_page_;
  ops::StateRun run_;
};

template <typename Visit>
PAGEMILL_DEVICE void ForEachStateRun(const StepTokens& batch, int64_t request,
                                     const Visit& visit) {
  constexpr int32_t kWhole = 0x7fffffff;
  for (StateRuns runs(batch, request); runs.Next(kWhole);) visit(runs.run());
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_
