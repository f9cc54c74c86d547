// File: cc/ops/states/channel_blocks.h
// What ops share whose states have one element for each channel, or a few: threads have blocks of
// channels, and walk the requests of the batch with each.
//
//   ForEachChannelBlock({.channels = args.channels, .rows = args.x.shape[0], .cost = kCost}, pool,
//                       [&](int64_t first, int64_t size) {
//                         ForEachStateRun(batch, [&](int64_t request, const StateRun& run) {
//                           const float* source = SourceOf(args.state, run);  // null: zeros
//                           ...
//                         });
//                       });
#ifndef PAGEMILL_CC_OPS_STATES_CHANNEL_BLOCKS_H_
#define PAGEMILL_CC_OPS_STATES_CHANNEL_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "cc/device/thread_pool.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_split.h"
#include "cc/ops/states/state_pages.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

inline constexpr int64_t kChannelBlock = 64;

struct ChannelWork {
  int64_t channels = 0;
  int64_t rows = 0;  // of the step
  int64_t cost = 1;  // multiply-adds of a channel and row
};

// Calls visit(first, size) for blocks of up to kChannelBlock channels, on several threads.
template <typename Visit>
void ForEachChannelBlock(const ChannelWork& work, device::ThreadPool& pool, const Visit& visit) {
  const int64_t blocks = (work.channels + kChannelBlock - 1) / kChannelBlock;
  const int64_t rows = std::max<int64_t>(work.rows, 1);
  pool.ParallelFor(blocks, RowsPerChunk(rows * kChannelBlock * work.cost),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t block = begin; block < end; ++block) {
                       const int64_t first = block * kChannelBlock;
                       visit(first, std::min(kChannelBlock, work.channels - first));
                     }
                   });
}

// Calls visit(request, run) for the runs of all requests, those of a request in order.
template <typename Visit>
void ForEachStateRun(const BatchView& batch, const Visit& visit) {
  for (int64_t request = 0; request < batch.num_requests; ++request) {
    ForEachStateRun(batch, request, [&](const StateRun& run) { visit(request, run); });
  }
}

// The state that a run begins with; null if it is zeros.
inline const float* SourceOf(const TensorView& states, const StateRun& run) {
  return run.source == kNullPage ? nullptr : states.Row<const float>(run.source);
}

// Floats from one row of `view` to the next.
inline int64_t RowFloats(const TensorView& view) {
  return view.row_stride_bytes / static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATES_CHANNEL_BLOCKS_H_
