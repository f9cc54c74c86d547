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
// If drafts may be rejected, the table begins with n = batch.recent_states pages, and the positions
// follow. The state after t tokens then lies in page t % n of these, except at a boundary whose
// position has a page. A step writes the states after each of its last n tokens, so that the next
// one may begin after any of them: it has up to n - 1 drafts, of which some are not accepted.
//
//   ForEachStateRun(batch, request, [&](const StateRun& run) {
//     Load(run.source);                              // zeros if it is kNullPage
//     Advance(/*rows=*/run.begin, run.end);          // rows of the step
//     Store(run.target);                             // may be the source
//   });
//
// So between two runs a state is only in its page. Cost: O(tokens / block_size). `Batch` is
// BatchView (batch_view.h), or has the members of it that are used here: kernels in source text
// include this file (sycl/ops/).
#ifndef PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_
#define PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_

#include <algorithm>
#include <cstdint>

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

// The table of one request of the batch.
class StateTable {
 public:
  template <typename Batch>
  StateTable(const Batch& batch, int64_t request)
      : recent_(batch.block_table + request * batch.block_table_stride),
        positions_(recent_ + batch.recent_states),
        num_recent_(batch.recent_states),
        block_size_(batch.block_size) {}

  // The page of the state after `tokens` > 0 tokens, where a step begins or ends.
  int32_t PageAfter(int32_t tokens) const {
    const int32_t page = positions_[(tokens - 1) / block_size_];
    const bool at_boundary = tokens % block_size_ == 0 && page != kNullPage;
    return num_recent_ == 0 || at_boundary ? page : recent_[tokens % num_recent_];
  }
  // The page of the state at a boundary, if it has one.
  int32_t PageAtBoundary(int32_t tokens) const { return positions_[tokens / block_size_ - 1]; }

 private:
  const int32_t* const recent_;
  const int32_t* const positions_;
  const int32_t num_recent_;
  const int32_t block_size_;  // tokens
};

// Calls visit(run) for the runs of a request in order; not at all if it has no token in the step.
template <typename Batch, typename Visit>
void ForEachStateRun(const Batch& batch, int64_t request, const Visit& visit) {
  const StateTable table(batch, request);
  const int32_t size = batch.block_size;
  const int32_t last_row = batch.query_start[request + 1];
  // The rows before this one need a state only at boundaries.
  const int32_t first_kept = last_row - std::max(1, batch.recent_states);
  StateRun run{.end = batch.query_start[request]};
  int32_t position = batch.seq_lens[request] - (last_row - run.end);  // of the token in row run.end
  if (position > 0) run.target = table.PageAfter(position);
  while (run.end < last_row) {
    run = {.source = run.target, .begin = run.end, .end = run.end};
    while (run.end < last_row && run.target == kNullPage) {
      const int32_t next_kept = std::max(first_kept - run.end, 0) + 1;
      const int32_t count = std::min(next_kept, size - position % size);
      position += count;
      run.end += count;
      if (run.end > first_kept) {
        run.target = table.PageAfter(position);
      } else if (position % size == 0) {
        run.target = table.PageAtBoundary(position);
      }
    }
    visit(run);
  }
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATES_STATE_PAGES_H_
