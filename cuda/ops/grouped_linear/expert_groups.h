// File: cuda/ops/grouped_linear/expert_groups.h
// Rows of a mixture of experts in groups that share a matrix, made on the GPU: how many groups
// there can be depends on shapes alone.
//
//   GroupRows(ids, /*group_rows=*/4, arrays, stream);  // arrays: of GroupArrays::Bytes()
//
// It is a stable counting sort by expert. A block sorts all rows if there are few; else blocks
// count chunks of rows, and a second launch adds up the counts and puts the rows into order.
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

  PAGEMILL_DEVICE int64_t IndexOf(int64_t row) const {
    const auto at = static_cast<uint32_t>(row), of_token = static_cast<uint32_t>(choices);
    return int64_t{at / of_token} * stride + at % of_token;
  }
  // Rows of no expert have `experts`, a bucket of their own.
  PAGEMILL_DEVICE int32_t BucketOf(int32_t id) const {
    return id < 0 || id >= experts ? experts : id;
  }
  PAGEMILL_DEVICE int32_t ExpertOf(int64_t row) const { return BucketOf(data[IndexOf(row)]); }
  constexpr int32_t Buckets() const { return experts + 1; }
};

// Rows order[begin] to order[begin + count - 1].
struct ExpertGroup {
  int32_t expert, begin, count;
};

inline int64_t MaxGroups(int64_t rows, int64_t experts, int64_t group_rows) {
  return rows / group_rows + std::min(rows, experts + 1);
}

// How rows are divided among blocks.
struct ChunkShape {
  int32_t threads;  // of a block
  int32_t steps;    // rows of a thread
  int32_t chunks;   // blocks

  static constexpr int32_t kMostSteps = 8;
  static constexpr int32_t kChunkRows = 2048;        // of several chunks; kMostSteps may be fewer
  static constexpr int64_t kSharedBytes = 60 << 10;  // every GPU has more
  static constexpr int64_t kWarp = 32;               // lanes, at least

  static ChunkShape Of(const RoutedIds& ids) {
    int32_t most = 1024;
    while (most > 64 && BytesOf(most, ids.Buckets()) > kSharedBytes) most /= 2;
    const auto threads = static_cast<int32_t>(BlockThreads(ids.rows, 1, most));
    const auto steps = static_cast<int32_t>(DivideUp(ids.rows, threads));
    if (steps <= kMostSteps) return {threads, steps, 1};
    const int32_t of_many = std::min(kMostSteps, kChunkRows / threads);
    return {threads, of_many, static_cast<int32_t>(DivideUp(ids.rows, threads * of_many))};
  }
  int64_t SharedBytes(int32_t num_buckets) const { return BytesOf(threads, num_buckets); }

 private:
  // What SortChunk() has: sums of buckets, and counts of warps or rows in order.
  static int64_t BytesOf(int64_t threads, int64_t num_buckets) {
    const int64_t numbers = std::max(threads / kWarp * (num_buckets + 1), threads * kMostSteps);
    return (num_buckets + 1) * static_cast<int64_t>(sizeof(uint64_t)) +
           numbers * static_cast<int64_t>(sizeof(uint16_t));
  }
};

struct GroupArrays {
  ExpertGroup* groups;  // [max_groups]; those behind the last one are empty
  int32_t* order;       // [rows], sorted by expert
  int32_t* counts;      // [chunks, buckets]: rows; empty if there is one chunk
  int32_t max_groups;

  static int64_t Bytes(const RoutedIds& ids, int64_t group_rows) {
    const int64_t chunks = ChunkShape::Of(ids).chunks;
    const int64_t words = ids.rows + (chunks > 1 ? chunks * ids.Buckets() : 0);
    return MaxGroups(ids.rows, ids.experts, group_rows) * int64_t{sizeof(ExpertGroup)} +
           words * int64_t{sizeof(int32_t)};
  }
  static GroupArrays At(std::byte* memory, const RoutedIds& ids, int64_t group_rows) {
    const int64_t max_groups = MaxGroups(ids.rows, ids.experts, group_rows);
    auto* const groups = reinterpret_cast<ExpertGroup*>(memory);
    auto* const order = reinterpret_cast<int32_t*>(groups + max_groups);
    return {groups, order, order + ids.rows, static_cast<int32_t>(max_groups)};
  }
};

// The lanes of the warp that pass the same bucket, which is at most `last`.
PAGEMILL_DEVICE LaneMask LanesOfBucket(int32_t bucket, int32_t last) {
  LaneMask same = AllLanes();
  for (int32_t bit = 1; bit <= last; bit *= 2) {
    const bool is_set = (bucket & bit) != 0;
    const LaneMask lanes = Ballot(AllLanes(), is_set);
    same &= is_set ? lanes : ~lanes;
  }
  return same;
}

// Rows of a thread in its chunk. A warp has consecutive rows: each step, one of each lane.
struct ChunkRows {
  static constexpr int kMost = ChunkShape::kMostSteps;
  int32_t first, end;      // the thread's first row; the number of all rows
  int32_t buckets[kMost];  // steps without a row have ids.Buckets()
  int32_t ranks[kMost];    // rows of the bucket before it, in its warp

  // `counts`: of the warp, for each bucket and for steps without a row.
  PAGEMILL_DEVICE ChunkRows(const RoutedIds& ids, int32_t steps, uint16_t* counts) {
    const int32_t none = ids.Buckets(), lanes = WarpLanes();
    const int32_t warps = static_cast<int32_t>(BlockSize().x) / lanes;
    first = (static_cast<int32_t>(BlockIndex().x) * warps + Warp()) * steps * lanes + Lane();
    end = static_cast<int32_t>(ids.rows);
    const auto has_row = [&](int i) { return i < steps && HasRow(i); };
    const auto load = [&](const auto& index_of) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kMost; ++i) buckets[i] = ids.data[index_of(has_row(i) ? RowOf(i) : 0)];
    };
    if (ids.stride == ids.choices) {  // no divisions
      load([](int32_t row) { return row; });
    } else {
      load([&](int32_t row) { return ids.IndexOf(row); });
    }
    for (int32_t e = Lane(); e <= none; e += lanes) counts[e] = 0;
    PAGEMILL_UNROLL
    for (int i = 0; i < kMost; ++i) buckets[i] = has_row(i) ? ids.BucketOf(buckets[i]) : none;
    SyncWarp(AllLanes());
    const LaneMask before = (LaneMask{1} << Lane()) - 1;
    PAGEMILL_UNROLL
    for (int i = 0; i < kMost; ++i) {
      if (i >= steps) break;
      const LaneMask same = LanesOfBucket(buckets[i], none);
      const int rank = CountBits(same & before);
      const int32_t counted = counts[buckets[i]];
      ranks[i] = counted + rank;
      SyncWarp(AllLanes());
      if (rank == 0) counts[buckets[i]] = static_cast<uint16_t>(counted + CountBits(same));
      SyncWarp(AllLanes());
    }
  }
  PAGEMILL_DEVICE int32_t RowOf(int step) const { return first + step * WarpLanes(); }
  PAGEMILL_DEVICE bool HasRow(int step) const { return RowOf(step) < end; }
};

inline constexpr int kCountsAhead = 8;  // loads under way

// Makes the counts of a bucket by each warp sums of those before, and returns that of all.
PAGEMILL_DEVICE int32_t AddWarps(uint16_t* counts, int32_t num_buckets) {
  const int32_t warps = static_cast<int32_t>(BlockSize().x) / WarpLanes();
  int32_t sum = 0;
  for (int32_t first = 0; first < warps; first += kCountsAhead) {
    int32_t some[kCountsAhead];
    PAGEMILL_UNROLL
    for (int i = 0; i < kCountsAhead; ++i) {
      some[i] = first + i < warps ? counts[(first + i) * (num_buckets + 1)] : 0;
    }
    PAGEMILL_UNROLL
    for (int i = 0; i < kCountsAhead; ++i) {
      if (first + i < warps) {
        counts[(first + i) * (num_buckets + 1)] = static_cast<uint16_t>(sum);
      }
      sum += some[i];
    }
  }
  return sum;
}

// Rows of a bucket in the first `chunks` chunks.
PAGEMILL_DEVICE int32_t SumOfChunks(const int32_t* counts, int32_t chunks, int32_t num_buckets) {
  int32_t sum = 0;
  for (int32_t first = 0; first < chunks; first += kCountsAhead) {
    int32_t some[kCountsAhead];
    PAGEMILL_UNROLL
    for (int i = 0; i < kCountsAhead; ++i) {
      some[i] = first + i < chunks ? counts[int64_t{first + i} * num_buckets] : 0;
    }
    PAGEMILL_UNROLL
    for (int i = 0; i < kCountsAhead; ++i) sum += some[i];
  }
  return sum;
}

// Rows and groups of a bucket, or of those before it, in one number that can be added.
struct RowsAndGroups {
  uint64_t bits;

  static PAGEMILL_DEVICE uint64_t Of(int32_t rows, int32_t group_rows) {
    return static_cast<uint64_t>((rows + group_rows - 1) / group_rows) << 32 |
           static_cast<uint32_t>(rows);
  }
  PAGEMILL_DEVICE int32_t rows() const { return static_cast<int32_t>(bits); }
  PAGEMILL_DEVICE int32_t groups() const { return static_cast<int32_t>(bits >> 32); }
};

// By a warp: makes `counts` sums of the buckets before, and adds that of all behind the last one.
PAGEMILL_DEVICE void AddBuckets(RowsAndGroups* counts, int32_t num_buckets) {
  // Each lane has some consecutive buckets.
  const int32_t share = (num_buckets + WarpLanes() - 1) / WarpLanes();
  const int32_t begin = Lane() * share < num_buckets ? Lane() * share : num_buckets;
  const int32_t end = begin + share < num_buckets ? begin + share : num_buckets;
  uint64_t of_lane = 0;
  for (int32_t e = begin; e < end; ++e) of_lane += counts[e].bits;
  uint64_t sum = SumOfLanesBefore(of_lane);
  for (int32_t e = begin; e < end; ++e) {
    const uint64_t count = counts[e].bits;
    counts[e].bits = sum;
    sum += count;
  }
  if (Lane() == WarpLanes() - 1) counts[num_buckets].bits = sum;
}

// By all blocks: `before` has the rows and groups before each bucket.
PAGEMILL_DEVICE void WriteGroups(const RowsAndGroups* before, int32_t num_buckets,
                                 int32_t group_rows, const GroupArrays& arrays) {
  constexpr int32_t kTeam = 8;  // threads that share a bucket
  const int32_t thread = static_cast<int32_t>(BlockIndex().x * BlockSize().x + ThreadIndex().x);
  const int32_t threads = static_cast<int32_t>(GridSize().x * BlockSize().x);
  for (int32_t e = thread / kTeam; e < num_buckets; e += threads / kTeam) {
    const RowsAndGroups own = before[e], next = before[e + 1];
    for (int32_t i = thread % kTeam; i < next.groups() - own.groups(); i += kTeam) {
      const int32_t begin = own.rows() + i * group_rows, left = next.rows() - begin;
      arrays.groups[own.groups() + i] = {e, begin, left < group_rows ? left : group_rows};
    }
  }
  for (int32_t group = before[num_buckets].groups() + thread; group < arrays.max_groups;
       group += threads) {
    arrays.groups[group] = {0, 0, 0};
  }
}

// Block (chunk).
PAGEMILL_KERNEL CountChunk(RoutedIds ids, int32_t steps, GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  const int32_t num_buckets = ids.Buckets();
  uint16_t* const counts = DynamicShared<uint16_t>();
  const ChunkRows own(ids, steps, counts + Warp() * (num_buckets + 1));
  SyncBlock();
  const int32_t threads = static_cast<int32_t>(BlockSize().x);
  for (int32_t e = static_cast<int32_t>(ThreadIndex().x); e < num_buckets; e += threads) {
    arrays.counts[int64_t{BlockIndex().x} * num_buckets + e] = AddWarps(counts + e, num_buckets);
  }
}

// Block (chunk), of counted chunks if there are several.
PAGEMILL_KERNEL_OF(1024, 1)
SortChunk(RoutedIds ids, int32_t steps, int32_t group_rows, GroupArrays arrays) {
  LetNextBegin();
  AwaitInputs();
  const int32_t thread = static_cast<int32_t>(ThreadIndex().x), num_buckets = ids.Buckets();
  const int32_t threads = static_cast<int32_t>(BlockSize().x);
  const int32_t chunk = static_cast<int32_t>(BlockIndex().x);
  const int32_t chunks = static_cast<int32_t>(GridSize().x);
  RowsAndGroups* const before = DynamicShared<RowsAndGroups>();  // buckets; at first, of a bucket
  uint16_t* const counts = reinterpret_cast<uint16_t*>(before + num_buckets + 1);
  uint16_t* const of_warp = counts + Warp() * (num_buckets + 1);
  const ChunkRows own(ids, steps, of_warp);
  SyncBlock();
  for (int32_t e = thread; e < num_buckets; e += threads) {
    int32_t rows = AddWarps(counts + e, num_buckets);
    if (chunks > 1) rows = SumOfChunks(arrays.counts + e, chunks, num_buckets);
    before[e].bits = RowsAndGroups::Of(rows, group_rows);
  }
  SyncBlock();
  if (Warp() == 0) AddBuckets(before, num_buckets);
  SyncBlock();
  WriteGroups(before, num_buckets, group_rows, arrays);
  if (chunks > 1) {
    SyncBlock();
    for (int32_t e = thread; e < num_buckets; e += threads) {
      const int32_t rows = SumOfChunks(arrays.counts + e, chunk, num_buckets);
      before[e].bits += static_cast<uint32_t>(rows);
    }
    SyncBlock();
  }
  int32_t places[ChunkRows::kMost];
  PAGEMILL_UNROLL
  for (int i = 0; i < ChunkRows::kMost; ++i) {
    if (i >= steps) break;
    places[i] = before[own.buckets[i]].rows() + of_warp[own.buckets[i]] + own.ranks[i];
  }
  if (chunks > 1) {
    PAGEMILL_UNROLL
    for (int i = 0; i < ChunkRows::kMost; ++i) {
      if (i >= steps) break;
      if (own.HasRow(i)) arrays.order[places[i]] = own.RowOf(i);
    }
    return;
  }
  uint16_t* const sorted = counts;  // put into order here, so that neighbours are stored at once
  SyncBlock();
  PAGEMILL_UNROLL
  for (int i = 0; i < ChunkRows::kMost; ++i) {
    if (i >= steps) break;
    if (own.HasRow(i)) sorted[places[i]] = static_cast<uint16_t>(own.RowOf(i));
  }
  SyncBlock();
  for (int32_t i = thread; i < own.end; i += threads) arrays.order[i] = sorted[i];
}

// Sorts rows by expert, and divides those of each into groups of `group_rows`.
inline void GroupRows(const RoutedIds& ids, int32_t group_rows, const GroupArrays& arrays,
                      device::Stream& stream) {
  const ChunkShape chunk = ChunkShape::Of(ids);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(chunk.chunks)},
                             .threads = {static_cast<uint32_t>(chunk.threads)},
                             .shared_bytes = chunk.SharedBytes(ids.Buckets()),
                             .early = true};
  if (chunk.chunks > 1) Launch(stream, shape, CountChunk, ids, chunk.steps, arrays);
  Launch(stream, shape, SortChunk, ids, chunk.steps, group_rows, arrays);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GROUPED_LINEAR_EXPERT_GROUPS_H_
