// File: cc/ops/grouped_linear/expert_rows.h
// Sorts the rows of a call by expert and divides them into chunks: at most `max_rows` rows of one
// expert that are multiplied together. Rows of an expert stay in ascending order.
//
//   const ExpertRows sorted = SortRows(ids, experts, max_rows, workspace);
//   for (const ExpertGroup& group : sorted.groups)
//     for (int64_t s = group.first_chunk; s < group.end_chunk; ++s) Multiply(sorted.chunks[s]);
//
// O(rows + experts), on the calling thread: 4 ns a row. All arrays are in `workspace`, which has
// ExpertRowsBytes() and is 64-byte aligned.
#ifndef PAGEMILL_CC_OPS_GROUPED_LINEAR_EXPERT_ROWS_H_
#define PAGEMILL_CC_OPS_GROUPED_LINEAR_EXPERT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/tensor/tensor_view.h"

namespace pagemill::ops::grouped_linear {

struct Chunk {
  const int32_t* rows;  // token * choices + choice
  int64_t count;
};

// An expert with at least one row.
struct ExpertGroup {
  int64_t expert;
  int64_t first_chunk;
  int64_t end_chunk;
};

struct ExpertRows {
  std::span<const ExpertGroup> groups;
  std::span<const Chunk> chunks;
  std::span<const int32_t> without_expert;  // rows whose id is outside [0, experts)
};

// Upper bound of the number of chunks of `rows` rows.
int64_t MaxChunks(int64_t rows, int64_t experts, int64_t max_rows);

int64_t ExpertRowsBytes(int64_t rows, int64_t experts, int64_t max_rows);

// `ids` is i32 [tokens, choices]. Chunks of an expert have nearly equal numbers of rows.
ExpertRows SortRows(const TensorView& ids, int64_t experts, int64_t max_rows,
                    std::span<std::byte> workspace);

}  // namespace pagemill::ops::grouped_linear

#endif  // PAGEMILL_CC_OPS_GROUPED_LINEAR_EXPERT_ROWS_H_
