// File: cc/ops/states/head_runs.h
// What ops share whose states are a matrix for each head: threads have heads of requests.
//
//   ForEachHeadRun(*args.batch, args.heads, /*cost=*/args.keys * args.values, *context.pool,
//                  [&](const StateRun& run, int64_t head) { ... });
#ifndef PAGEMILL_CC_OPS_STATES_HEAD_RUNS_H_
#define PAGEMILL_CC_OPS_STATES_HEAD_RUNS_H_

#include <cstdint>

#include "cc/device/thread_pool.h"
#include "cc/ops/batch_view.h"
#include "cc/ops/row_split.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops {

// Calls visit(run, head) for the runs of all requests and heads, those of one request and head in
// order and on one thread. `cost`: elements of a head's state.
template <typename Visit>
void ForEachHeadRun(const BatchView& batch, int64_t heads, int64_t cost, device::ThreadPool& pool,
                    const Visit& visit) {
  pool.ParallelFor(
      batch.num_requests * heads, RowsPerChunk(cost), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          ForEachStateRun(batch, i / heads, [&](const StateRun& run) { visit(run, i % heads); });
        }
      });
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATES_HEAD_RUNS_H_
