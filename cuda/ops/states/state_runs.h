// File: cuda/ops/states/state_runs.h
// Pages of recurrent states (cc/ops/states/state_pages.h), for kernels.
//
//   PAGEMILL_KERNEL Scan(..., StateBatch batch) {
//     ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
//       Load(run.source);                          // zeros if it is kNullPage
//       Advance(/*rows=*/run.begin, run.end);
//       if (run.target != ops::kNullPage) Store(run.target);
//     });
//   }
//   ...
//   Launch(stream, shape, Scan, ..., StateBatchOf(*call.batch));
//
// The target is the null page for padding requests alone.
#ifndef PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_
#define PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_

#include <cstdint>

#include "cc/ops/batch_view.h"
#include "cc/ops/states/state_pages.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct StateBatch {
  const int32_t* data;  // the block table
  int64_t table_stride;
  int32_t block_size;
  const int32_t* query_start;
  const int32_t* seq_lens;
};

inline StateBatch StateBatchOf(const ops::BatchView& batch) {
  return {batch.block_table, batch.block_table_stride, batch.block_size, batch.query_start,
          batch.seq_lens};
}

template <typename Visit>
PAGEMILL_DEVICE void ForEachStateRun(const StateBatch& batch, int64_t request,
                                     const Visit& visit) {
  const int32_t* const table = batch.data + request * batch.table_stride;
  const int32_t size = batch.block_size, last_row = batch.query_start[request + 1];
  ops::StateRun run;
  run.end = batch.query_start[request];
  int32_t position = batch.seq_lens[request] - (last_row - run.end);  // of the token in row run.end
  if (position > 0) run.target = table[(position - 1) / size];
  while (run.end < last_row) {
    run = {run.target, ops::kNullPage, run.end, run.end};
    while (run.end < last_row && run.target == ops::kNullPage) {
      const int32_t in_page = size - position % size, left = last_row - run.end;
      const int32_t count = in_page < left ? in_page : left;
      position += count;
      run.end += count;
      run.target = table[(position - 1) / size];
    }
    visit(run);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_RUNS_H_
