// File: cc/ops/states/state_pages.h
// Pages of the recurrent states that a step reads and writes: entries of the block table of the
// layers' KV group.
//
// Position i of the table is the page of the state after token (i + 1) * block_size, or after the
// request's last token if that comes before. A step over tokens [begin, end) of a request reads
// position (begin - 1) / block_size (nothing if begin = 0), writes the state after `end` to
// position (end - 1) / block_size, and the state after (i + 1) * block_size to every position i in
// between that is not null. The scheduler chooses the positions with pages
// (kv_cache/kinds/state_space.h). Pages of other requests are read but never written.
//
//   ForEachStateRun(batch, request, [&](const StateRun& run) {
//     Load(run.source);                              // zeros if it is kNullPage
//     Advance(/*rows=*/run.begin, run.end);          // rows of the step
//     Store(run.target);                             // may be the source
//   });
//
// So between two runs a state is only in its page. Cost: O(tokens / block_size).
#ifndef PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_
#define PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_

#include <algorithm>
#include <cstdint>

#include "cc/ops/batch_view.h"

namespace pagemill::ops {

inline constexpr int32_t kNullPage = 0;

// Tokens between two stored states: from the state in page `source` over rows [begin, end) of the
// step to the state in page `target`.
struct StateRun {
  int32_t source = kNullPage;
  int32_t target = kNullPage;
  int32_t begin = 0;
  int32_t end = 0;
};

// Calls visit(run) for the runs of a request in order; not at all if it has no token in the step.
template <typename Visit>
void ForEachStateRun(const BatchView& batch, int64_t request, const Visit& visit) {
  const int32_t* const table = batch.block_table + request * batch.block_table_stride;
  const int32_t size = batch.block_size;
  const int32_t last_row = batch.query_start[request + 1];
  StateRun run{.end = batch.query_start[request]};
  int32_t position = batch.seq_lens[request] - (last_row - run.end);  // of the token in row run.end
  if (position > 0) run.target = table[(position - 1) / size];
  while (run.end < last_row) {
    run = {.source = run.target, .begin = run.end, .end = run.end};
    while (run.end < last_row && run.target == kNullPage) {
      const int32_t count = std::min(last_row - run.end, size - position % size);
      position += count;
      run.end += count;
      run.target = table[(position - 1) / size];
    }
    visit(run);
  }
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_
