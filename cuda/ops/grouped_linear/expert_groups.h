// File: cuda/ops/grouped_linear/expert_groups.h
// Rows of a mixture of experts in groups that share a matrix, made on the GPU: how many groups
// there can be depends on shapes alone.
//
//   GroupRows(ids, /*group_rows=*/4, arrays, stream);  // arrays: GroupArrays of GroupBytes() bytes
//
// It is a stable counting sort by expert. Chunks of rows are counted, one block adds up the counts
// of all chunks, and chunks put their rows into order. A single chunk takes one launch, others three.
#ifndef PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_
#define PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/sums/sums_before.h"

namespace pagemill::gpu {

// Row r is choice r % choices of token r / choices.
struct RoutedIds {
  const int32_t* data;
  int64_t stride;
  int64_t choices, rows;
  int32_t experts;

  // Rows of no expert have `experts`, a bucket of their own.
  PAGEMILL_DEVICE int32_t ExpertOf(int64_t row) const {
    const int32_t id = data[row / choices * stride + row % choices];
    return id < 0 || id >= experts ? experts : id;
  }
  constexpr int32_t Buckets() const { return experts + 1; }
};

// Rows order[begin] to order[begin + count - 1].
struct ExpertGroup {
  int32_t expert, begin, count;
};

inline constexpr int kChunkRows = 256;  // and threads of a block

inline int64_t MaxGroups(int64_t rows, int64_t experts, int64_t group_rows) {
  return rows / group_rows + std::min(rows, experts + 1);
}

struct GroupArrays {
  ExpertGroup* groups;  // [max_groups]; those behind the last one are empty
  int32_t* order;       // [rows], sorted by expert
  int32_t* starts;      // [buckets]: where the rows of a bucket begin in `order`
  int32_t* before;      // [chunks, buckets]: rows of the bucket in the chunks before
  int32_t max_groups;

  static int64_t Bytes(const RoutedIds& ids, int64_t group_rows) {
    const int64_t words = ids.rows + (1 + DivideUp(ids.rows, kChunkRows)) * ids.Buckets();
    return MaxGroups(ids.rows, ids.experts, group_rows) * int64_t{sizeof(ExpertGroup)} +
           words * int64_t{sizeof(int32_t)};
  }
  static GroupArrays At(std::byte* memory, const RoutedIds& ids, int64_t group_rows) {
    const int64_t max_groups = MaxGroups(ids.rows, ids.experts, group_rows);
    auto* const groups = reinterpret_cast<ExpertGroup*>(memory);
    auto* const order = reinterpret_cast<int32_t*>(groups + max_groups);
    auto* const starts = order + ids.rows;
    return {groups, order, starts, starts + ids.Buckets(), static_cast<int32_t>(max_groups)};
  }
};

// A row of a chunk, whose thread it is.
struct ChunkRow {
  int32_t row, bucket;  // bucket: -1 behind the last row
  int32_t rank;         // rows of the bucket before it, in its chunk
  bool is_last;         // of its bucket, in its chunk

  PAGEMILL_DEVICE ChunkRow(const RoutedIds& ids, int64_t chunk) {
    PAGEMILL_SHARED(int32_t[kChunkRows], buckets);
    const int thread = static_cast<int>(ThreadIndex().x);
    row = static_cast<int32_t>(chunk * kChunkRows + thread);
    bucket = row < ids.rows ? ids.ExpertOf(row) : -1;
    buckets[thread] = bucket;
    SyncBlock();
    rank = 0;
    int32_t behind = 0;
    for (int i = 0; i < kChunkRows; ++i) {
      const int32_t is_same = buckets[i] == bucket ? 1 : 0;
      rank += i < thread ? is_same : 0;
      behind += i > thread ? is_same : 0;
    }
    is_last = behind == 0;
  }
};

// `counts`: of the chunk, a word a bucket.
PAGEMILL_DEVICE void CountChunk(const ChunkRow& own, int32_t num_buckets, int32_t* counts) {
  for (int32_t e = static_cast<int32_t>(ThreadIndex().x); e < num_buckets; e += kChunkRows) {
    counts[e] = 0;
  }
  SyncBlock();
  if (own.bucket >= 0 && own.is_last) counts[own.bucket] = own.rank + 1;
}

PAGEMILL_DEVICE void PlaceChunk(const ChunkRow& own, const int32_t* before,
                                const GroupArrays& arrays) {
  if (own.bucket < 0) return;
  arrays.order[arrays.starts[own.bucket] + before[own.bucket] + own.rank] = own.row;
}

// Makes sums of a bucket's counts of all chunks, in their place, and returns that of all.
PAGEMILL_DEVICE int32_t AddChunks(int32_t* counts, int32_t chunks, int32_t num_buckets) {
  constexpr int kAhead = 8;  // loads under way
  int32_t sum = 0;
  for (int32_t first = 0; first < chunks; first += kAhead) {
    int32_t some[kAhead];
    PAGEMILL_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      some[i] = first + i < chunks ? counts[int64_t{first + i} * num_buckets] : 0;
    }
    PAGEMILL_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < chunks) counts[int64_t{first + i} * num_buckets] = sum;
      sum += some[i];
    }
  }
  return sum;
}

// Dynamic shared memory of MakeGroups().
inline int64_t GroupSharedBytes(int32_t num_buckets) {
  return 2 * (num_buckets + 1) * static_cast<int64_t>(sizeof(int32_t));
}

// By one block: what lies where, of the counts of all chunks.
PAGEMILL_DEVICE void MakeGroups(int32_t num_buckets, int32_t chunks, int32_t group_rows,
                                const GroupArrays& arrays) {
  const int32_t thread = static_cast<int32_t>(ThreadIndex().x);
  int32_t* const starts = DynamicShared<int32_t>();  // of the rows of a bucket; at first, how many
  int32_t* const firsts = starts + num_buckets + 1;  // likewise its groups
  for (int32_t e = thread; e < num_buckets; e += kChunkRows) {
    starts[e] = AddChunks(arrays.before + e, chunks, num_buckets);
  }
  SyncBlock();
  if (Warp() == 0) {  // each lane has some consecutive buckets
    const int32_t share = (num_buckets + WarpLanes() - 1) / WarpLanes();
    const int32_t begin = Lane() * share < num_buckets ? Lane() * share : num_buckets;
    const int32_t end = begin + share < num_buckets ? begin + share : num_buckets;
    const auto groups_of = [&](int32_t rows) { return (rows + group_rows - 1) / group_rows; };
    int32_t rows = 0, groups = 0;
    for (int32_t e = begin; e < end; ++e) {
      rows += starts[e];
      groups += groups_of(starts[e]);
    }
    int32_t start = SumOfLanesBefore(rows), first = SumOfLanesBefore(groups);
    for (int32_t e = begin; e < end; ++e) {
      const int32_t count = starts[e];
      starts[e] = start;
      firsts[e] = first;
      start += count;
      first += groups_of(count);
    }
    if (Lane() == WarpLanes() - 1) {
      starts[num_buckets] = start;
      firsts[num_buckets] = first;
    }
  }
  SyncBlock();
  for (int32_t e = thread; e < num_buckets; e += kChunkRows) {
    arrays.starts[e] = starts[e];
    for (int32_t group = firsts[e]; group < firsts[e + 1]; ++group) {
      const int32_t begin = starts[e] + (group - firsts[e]) * group_rows;
      const int32_t left = starts[e + 1] - begin;
      arrays.groups[group] = {e, begin, left < group_rows ? left : group_rows};
    }
  }
  for (int32_t group = firsts[num_buckets] + thread; group < arrays.max_groups;
       group += kChunkRows) {
    arrays.groups[group] = {0, 0, 0};
  }
}

// Block (chunk).
PAGEMILL_KERNEL CountChunks(RoutedIds ids, GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  const int64_t chunk = BlockIndex().x;
  CountChunk(ChunkRow(ids, chunk), ids.Buckets(), arrays.before + chunk * ids.Buckets());
}

// One block.
PAGEMILL_KERNEL GroupCounted(int32_t num_buckets, int32_t chunks, int32_t group_rows,
                             GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  MakeGroups(num_buckets, chunks, group_rows, arrays);
}

// Block (chunk).
PAGEMILL_KERNEL PlaceChunks(RoutedIds ids, GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  const int64_t chunk = BlockIndex().x;
  PlaceChunk(ChunkRow(ids, chunk), arrays.before + chunk * ids.Buckets(), arrays);
}

// One block, for one chunk.
PAGEMILL_KERNEL GroupChunk(RoutedIds ids, int32_t group_rows, GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  const ChunkRow own(ids, /*chunk=*/0);
  CountChunk(own, ids.Buckets(), arrays.before);
  SyncBlock();
  MakeGroups(ids.Buckets(), /*chunks=*/1, group_rows, arrays);
  SyncBlock();
  PlaceChunk(own, arrays.before, arrays);
}

// Sorts rows by expert, and divides those of each into groups of `group_rows`.
inline void GroupRows(const RoutedIds& ids, int32_t group_rows, const GroupArrays& arrays,
                      device::Stream& stream) {
  const uint32_t chunks = DivideUp(ids.rows, kChunkRows);
  const LaunchShape one = {.blocks = {1},
                           .threads = {kChunkRows},
                           .shared_bytes = GroupSharedBytes(ids.Buckets()),
                           .early = true};
  if (chunks == 1) return Launch(stream, one, GroupChunk, ids, group_rows, arrays);
  const LaunchShape each = {.blocks = {chunks}, .threads = {kChunkRows}, .early = true};
  Launch(stream, each, CountChunks, ids, arrays);
  Launch(stream, one, GroupCounted, ids.Buckets(), chunks, group_rows, arrays);
  Launch(stream, each, PlaceChunks, ids, arrays);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_
