// File: cc/ops/row_split.h
// Grain of row-wise ops: how many rows a thread takes at a time.
#ifndef PAGEMILL_CC_OPS_ROW_SPLIT_H_
#define PAGEMILL_CC_OPS_ROW_SPLIT_H_

#include <algorithm>
#include <cstdint>

namespace pagemill::ops {

// Rows of `row_elements` that are worth handing to another thread: about 1 us of elementwise work,
// several times the cost of a hand-over (cc/device/thread_pool_benchmark.cc).
inline int64_t RowsPerChunk(int64_t row_elements) {
  constexpr int64_t kElementsPerChunk = 8192;
  return std::max<int64_t>(1, kElementsPerChunk / std::max<int64_t>(1, row_elements));
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROW_SPLIT_H_
