// File: cuda/ops/grouped_linear/expert_groups.h
// Rows of a mixture of experts in groups that share a matrix, made on the GPU: how many groups
// there can be depends on shapes alone.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_

#include <algorithm>
#include <cstdint>

#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Row r is choice r % choices of token r / choices.
struct RoutedIds {
  const int32_t* data;
  int64_t stride;
  int64_t choices, rows;
  int32_t experts;

  // Rows of no expert have `experts`.
  PAGEMILL_DEVICE int32_t ExpertOf(int64_t row) const {
    const int32_t id = data[row / choices * stride + row % choices];
    return id < 0 || id >= experts ? experts : id;
  }
};

// Rows order[begin] to order[begin + count - 1].
struct ExpertGroup {
  int32_t expert, begin, count;
};

inline constexpr uint32_t kGroupThreads = 128;

inline int64_t MaxGroups(int64_t rows, int64_t experts, int64_t group_rows) {
  return rows / group_rows + std::min(rows, experts + 1);
}

// Dynamic shared memory of GroupRows().
inline int64_t GroupSharedBytes(int64_t experts) {
  return (2 * (experts + 2) + kGroupThreads) * static_cast<int64_t>(sizeof(int32_t));
}

// One block. Sorts rows by expert, and divides those of each into groups of `group_rows`; groups
// behind the last one are empty.
PAGEMILL_KERNEL GroupRows(RoutedIds ids, int32_t group_rows, int32_t max_groups, int32_t* order,
                          ExpertGroup* groups) {
  constexpr int kThreads = kGroupThreads;
  const int thread = static_cast<int>(ThreadIndex().x);
  const int32_t buckets = ids.experts + 1;
  int32_t* const starts = DynamicShared<int32_t>();  // where the rows of a bucket begin in `order`
  int32_t* const firsts = starts + buckets + 1;      // likewise its groups
  int32_t* const some = firsts + buckets + 1;        // experts of consecutive rows
  // Calls visit(e, row) for the rows of each bucket e of this thread, in order.
  const auto visit_rows = [&](const auto& visit) {
    for (int64_t first = 0; first < ids.rows; first += kThreads) {
      const int64_t left = ids.rows - first;
      const int count = static_cast<int>(left < kThreads ? left : kThreads);
      SyncBlock();  // those before have been read
      if (thread < count) some[thread] = ids.ExpertOf(first + thread);
      SyncBlock();
      for (int i = 0; i < count; ++i) {
        if (some[i] % kThreads == thread) visit(some[i], static_cast<int32_t>(first) + i);
      }
    }
  };
  for (int32_t e = thread; e < buckets; e += kThreads) starts[e] = 0;
  visit_rows([&](int32_t e, int32_t) { ++starts[e]; });
  SyncBlock();
  if (thread == 0) {
    int32_t row = 0, group = 0;
    for (int32_t e = 0; e < buckets; ++e) {
      const int32_t count = starts[e];
      starts[e] = row;
      firsts[e] = group;
      row += count;
      group += (count + group_rows - 1) / group_rows;
    }
    starts[buckets] = row;
    firsts[buckets] = group;
  }
  SyncBlock();
  for (int32_t e = thread; e < buckets; e += kThreads) {
    for (int32_t group = firsts[e]; group < firsts[e + 1]; ++group) {
      const int32_t begin = starts[e] + (group - firsts[e]) * group_rows;
      const int32_t left = starts[e + 1] - begin;
      groups[group] = {e, begin, left < group_rows ? left : group_rows};
    }
  }
  for (int32_t group = firsts[buckets] + thread; group < max_groups; group += kThreads) {
    groups[group] = {0, 0, 0};
  }
  SyncBlock();  // `starts` has been read
  visit_rows([&](int32_t e, int32_t row) { order[starts[e]++] = row; });
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_
