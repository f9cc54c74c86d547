// File: cuda/ops/linear/tensor_core_tiles.h
// Tiles of products on tensor cores, for kernels: in bf16 with weights in any format of weights.h,
// which become bf16 eight at a time, and in int8.
//
// Weights are the left factor of each instruction, so that a row of x costs as much as eight.
// A sum is that of kTileSplits parts of K, each in the order of K: with few rows of x, a warp has
// one part or two; with many, every warp has all of them. So bits depend on the row of x and K
// alone.
//
// A product P has
//
//   W                               the type of its weights
//   Columns, Sum                    Bf16Columns and float, or Int8Columns and int32_t
//   int64_t rows, outputs, columns  N, M, K
//   const Columns* FirstOfX()       the first row of x
//   const Columns* RowOfX(row)      zeros behind the last column, up to kTensorCoreColumns
//   W::Row RowOfW(output)
//   Columns LoadW(row_of_w, first)  columns from `first` on, likewise
//   Target TargetOf(row)            where results of a row go
//   void Store(target, output, sum) for rows and outputs that exist
//
//   template <typename P, typename Tile>  // Tile: FewRows<P, 1>, ManyRows<P, 4>, ...
//   PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(P p) {
//     Tile::Multiply(p, BlockIndex().x * Tile::kOutputs, BlockIndex().y * Tile::kRows);
//   }
//
// It is launched with Tile::kSharedBytes of dynamic shared memory.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORE_TILES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORE_TILES_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

inline constexpr int kTensorCoreColumns = 32;
inline constexpr int kTileSplits = 8;  // so that few outputs have warps that keep memory busy

// Eight columns of a row. The instruction's order of K does not matter as long as both factors have
// the same: a lane's fragments of kTensorCoreColumns are eight columns that follow each other.
struct alignas(16) Bf16Columns {
  uint32_t pairs[4];
};
struct alignas(8) Int8Columns {
  uint32_t quads[2];
};

PAGEMILL_DEVICE Bf16Columns PackColumns(const float (&w)[kWeightsAtOnce]) {
  Bf16Columns columns;
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) columns.pairs[i] = PackBFloat16(w[2 * i], w[2 * i + 1]);
  return columns;
}

// Columns `first` to first + 7 of a row of weights, without its factor. Rows of bf16 are 16-byte
// aligned.
template <typename W>
PAGEMILL_DEVICE Bf16Columns LoadInBf16(const typename W::Row& row, int64_t first) {
  if constexpr (std::is_same_v<W, StoredWeights<DType::kBF16>>) {
    return *reinterpret_cast<const Bf16Columns*>(row.at + first * sizeof(BFloat16));
  } else {
    float w[kWeightsAtOnce];
    row.Load(first, kWeightsAtOnce, w);
    return PackColumns(w);
  }
}

// Adds the products of kTensorCoreColumns columns of 16 outputs and kRowTiles times 8 rows to sums,
// as Mma16x8x16 has them in lanes. `upper` and `lower`: of outputs Lane() / 4 and 8 more.
template <int kRowTiles>
PAGEMILL_DEVICE void MultiplyColumns(const Bf16Columns& upper, const Bf16Columns& lower,
                                     const Bf16Columns (&x)[kRowTiles],
                                     float (&sums)[kRowTiles][4]) {
  PAGEMILL_UNROLL
  for (int step = 0; step < 2; ++step) {
    const uint32_t a[4] = {upper.pairs[2 * step], lower.pairs[2 * step], upper.pairs[2 * step + 1],
                           lower.pairs[2 * step + 1]};
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const uint32_t b[2] = {x[j].pairs[2 * step], x[j].pairs[2 * step + 1]};
      Mma16x8x16(sums[j], a, b);
    }
  }
}
template <int kRowTiles>
PAGEMILL_DEVICE void MultiplyColumns(const Int8Columns& upper, const Int8Columns& lower,
                                     const Int8Columns (&x)[kRowTiles],
                                     int32_t (&sums)[kRowTiles][4]) {
  const uint32_t a[4] = {upper.quads[0], lower.quads[0], upper.quads[1], lower.quads[1]};
  PAGEMILL_UNROLL
  for (int j = 0; j < kRowTiles; ++j) Mma16x8x32(sums[j], a, x[j].quads);
}

static_assert(kTensorCoreColumns == kChunkColumns);

template <typename W>
inline constexpr bool kLoadsSpansAtOnce =
    requires(const typename W::Row& row) { row.LoadSpan(/*span=*/0u, /*eighth=*/0u); };

// The lane's columns of a span of kRows rows of weights with kHasChunkScales. Each of the four lanes
// that have a row of weights loads the scale of one chunk. `in_quads`: as Row::HasQuads() has it.
template <typename W, int kRows>
class WeightSpan {
 public:
  using Row = typename W::Row;

  // Starts loads, and waits for none.
  PAGEMILL_DEVICE WeightSpan(const Row (&rows)[kRows], unsigned span, bool in_quads)
      : span_(span) {
    if constexpr (kLoadsSpansAtOnce<W>) {
      PAGEMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto parts = rows[r].LoadSpan(span, Lane() % 4);
        PAGEMILL_UNROLL
        for (int i = 0; i < kSpanChunks; ++i) parts_[i][r] = parts.values[i];
      }
    } else {
      PAGEMILL_UNROLL
      for (unsigned i = 0; i < kSpanChunks; ++i) LoadParts(rows, {span, i}, in_quads, parts_[i]);
    }
    PAGEMILL_UNROLL
    for (int r = 0; r < kRows; ++r) stored_scales_[r] = rows[r].LoadScale(OwnChunk());
  }

  // Before InBf16().
  PAGEMILL_DEVICE void ComputeScales(const Row (&rows)[kRows]) {
    PAGEMILL_UNROLL
    for (int r = 0; r < kRows; ++r) scales_[r] = rows[r].ScaleOf(stored_scales_[r], OwnChunk());
  }
  // Of chunk i of the span, of row r.
  PAGEMILL_DEVICE Bf16Columns InBf16(const Row (&rows)[kRows], int r, int i) const {
    const int lane = Lane() / 4 * 4 + i;
    const ChunkScale scale = {Shuffle(AllLanes(), scales_[r].scale, lane),
                              Shuffle(AllLanes(), scales_[r].other, lane)};
    float w[kWeightsAtOnce];
    rows[r].Decode(Row::StoredOf(parts_[i][r]), {span_, static_cast<unsigned>(i)}, Lane() % 4,
                   scale, w);
    return PackColumns(w);
  }

 private:
  static_assert(kSpanChunks == 4);
  using Part = decltype(std::declval<Row>().LoadPart({0, 0}, 0));

  PAGEMILL_DEVICE static void LoadParts(const Row (&rows)[kRows], const ChunkOfSpan& chunk,
                                        bool in_quads, Part (&parts)[kRows]) {
    if constexpr (W::kHasQuads && kRows == 4) {
      if (in_quads) {
        const Vector<uint32_t, 4> words = rows[0].LoadQuad(chunk, Lane() % 4);
        PAGEMILL_UNROLL
        for (int r = 0; r < kRows; ++r) parts[r] = words.values[r];
        return;
      }
    }
    PAGEMILL_UNROLL
    for (int r = 0; r < kRows; ++r) parts[r] = rows[r].LoadPart(chunk, Lane() % 4);
  }
  PAGEMILL_DEVICE ChunkOfSpan OwnChunk() const {
    return {span_, static_cast<unsigned>(Lane() % 4)};
  }

  unsigned span_;
  Part parts_[kSpanChunks][kRows];
  decltype(std::declval<Row>().LoadScale({0, 0})) stored_scales_[kRows];
  ChunkScale scales_[kRows];
};

// Where the part of K after `split` begins, in chunks of kTensorCoreColumns.
PAGEMILL_DEVICE int EndOfSplit(int chunks, int split, int splits = kTileSplits) {
  return chunks * (split + 1) / splits;
}

template <typename P>
PAGEMILL_DEVICE int NumChunks(const P& p) {
  return static_cast<int>((p.columns + kTensorCoreColumns - 1) / kTensorCoreColumns);
}

// The lane's columns of rows first_row + 8 * j + Lane() / 4 of x. Rows beyond the last are read as
// the last.
template <typename P, int kRowTiles>
class LaneRows {
 public:
  PAGEMILL_DEVICE LaneRows(const P& p, int64_t first_row) : first_(p.FirstOfX()) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const int64_t row = first_row + 8 * j + Lane() / 4;
      offsets_[j] = static_cast<int32_t>(p.RowOfX(row < p.rows ? row : p.rows - 1) - first_) +
                    Lane() % 4;
    }
  }

  PAGEMILL_DEVICE void Load(int chunk, typename P::Columns (&x)[kRowTiles]) const {
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) x[j] = first_[offsets_[j] + chunk * 4];
  }

 private:
  const typename P::Columns* first_;
  int32_t offsets_[kRowTiles];  // half the registers of pointers
};

// The row of an output's weights; that of the last for those beyond it.
template <typename P>
PAGEMILL_DEVICE typename P::W::Row RowOfWeights(const P& p, int64_t output) {
  return p.RowOfW(output < p.outputs ? output : p.outputs - 1);
}

template <typename P>
PAGEMILL_DEVICE void StoreSum(const P& p, int64_t row, int64_t output, typename P::Sum sum) {
  if (row < p.rows && output < p.outputs) p.Store(p.TargetOf(row), output, sum);
}

// Adds the products of spans [first, end) to sums, as MultiplyColumns() for each two rows of weights.
// The next span is loaded while one is multiplied.
template <typename W, typename P, int kRows, int kRowTiles>
PAGEMILL_DEVICE void MultiplySpans(const typename W::Row (&rows)[kRows],
                                   const LaneRows<P, kRowTiles>& x, unsigned first, unsigned end,
                                   bool in_quads, float (&sums)[kRows / 2][kRowTiles][4]) {
  if (first >= end) return;
  WeightSpan<W, kRows> next(rows, first, in_quads);
  for (unsigned span = first; span < end; ++span) {
    WeightSpan<W, kRows> weights = next;
    next = WeightSpan<W, kRows>(rows, span + 1 < end ? span + 1 : span, in_quads);
    weights.ComputeScales(rows);
    PAGEMILL_UNROLL
    for (int i = 0; i < kSpanChunks; ++i) {
      Bf16Columns of_x[kRowTiles];
      x.Load(static_cast<int>(span) * kSpanChunks + i, of_x);
      PAGEMILL_UNROLL
      for (int tile = 0; tile < kRows / 2; ++tile) {
        MultiplyColumns(weights.InBf16(rows, 2 * tile, i), weights.InBf16(rows, 2 * tile + 1, i),
                        of_x, sums[tile]);
      }
    }
  }
}

// A block for kOutputs outputs of kRows rows of x, whose warps share K.
template <typename P, int kRowTiles>
struct FewRows {
  static constexpr bool kSharesK = true;
  static constexpr int kSharedBytes = 0;
  // With more outputs, words of AWQ make loads of 16 bytes.
  static constexpr int kOutputTiles = P::W::kHasQuads ? 2 : 1;
  static constexpr int kOutputs = 16 * kOutputTiles;
  static constexpr int kRows = 8 * kRowTiles;
  // With few rows, of which decoding takes most of the time, and threads have registers for it.
  static constexpr bool kLoadsSpans =
      P::W::kHasChunkScales &&
      (kRowTiles <= 2 || P::W::kHasQuads || kLoadsSpansAtOnce<typename P::W>);
  // Each has a part of K, unless threads take the registers of more.
  static constexpr int kWarps = kRowTiles + (kLoadsSpans ? 1 : 0) <= 2 ? kTileSplits : 4;
  static constexpr int kThreads = 32 * kWarps;
  // On a multiprocessor at least. Most kernels have registers for more.
  static constexpr int kBlocks = kRowTiles > 4    ? 3
                                 : !kLoadsSpans   ? 1
                                 : kRowTiles == 2 ? 3
                                                  : 2;
  // Whose loads are under way at once. Compilers see to that themselves if weights are not decoded;
  // most that are take too many registers.
  static constexpr int kChunksAhead = !P::W::kDecodesSimply ? 1
                                      : kRowTiles == 1      ? 8
                                      : kRowTiles == 2      ? 4
                                                            : 2;

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    PAGEMILL_SHARED(Sum[kTileSplits][kOutputs][kRows], parts);
    const int group = Lane() / 4, in_group = Lane() % 4;
    const LaneRows<P, kRowTiles> x(p, first_row);
    Row rows[2 * kOutputTiles];
    PAGEMILL_UNROLL
    for (int r = 0; r < 2 * kOutputTiles; ++r) {
      rows[r] = RowOfWeights(p, first_output + 8 * r + group);
    }
    const bool are_inside = first_output + kOutputs <= p.outputs;
    for (int i = 0; i < kTileSplits / kWarps; ++i) {
      const int split = Warp() + i * kWarps;
      Sum sums[kOutputTiles][kRowTiles][4] = {};
      MultiplySplit(p, rows, are_inside, x, split, sums);
      PAGEMILL_UNROLL
      for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
        const int tile = e / (kRowTiles * 4), j = e / 4 % kRowTiles, element = e % 4;
        parts[split][16 * tile + group + 8 * (element / 2)][8 * j + 2 * in_group + element % 2] =
            sums[tile][j][element];
      }
    }
    SyncBlock();
    for (int e = static_cast<int>(ThreadIndex().x); e < kOutputs * kRows; e += kThreads) {
      const int output = e / kRows, row = e % kRows;
      Sum sum = 0;
      PAGEMILL_UNROLL
      for (int part = 0; part < kTileSplits; ++part) sum += parts[part][output][row];
      StoreSum(p, first_row + row, first_output + output, sum);
    }
  }

 private:
  using Row = typename P::W::Row;
  using Sum = typename P::Sum;

  // Adds the products of a part of K to sums, as MultiplyColumns() for each two rows of weights.
  PAGEMILL_DEVICE static void MultiplySplit(const P& p, const Row (&rows)[2 * kOutputTiles],
                                            bool are_inside, const LaneRows<P, kRowTiles>& x,
                                            int split,
                                            Sum (&sums)[kOutputTiles][kRowTiles][4]) {
    const int chunks = NumChunks(p), end = EndOfSplit(chunks, split);
    const auto multiply = [&](int chunk) {
      typename P::Columns of_x[kRowTiles];
      x.Load(chunk, of_x);
      const int64_t own = int64_t{chunk * 4 + Lane() % 4} * kWeightsAtOnce;
      PAGEMILL_UNROLL
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        MultiplyColumns(p.LoadW(rows[2 * tile], own), p.LoadW(rows[2 * tile + 1], own), of_x,
                        sums[tile]);
      }
    };
    int chunk = EndOfSplit(chunks, split - 1);
    if constexpr (kLoadsSpans) {
      if (rows[0].HasChunkScales()) {
        for (; chunk < end && chunk % kSpanChunks != 0; ++chunk) multiply(chunk);
        MultiplySpans<typename P::W>(rows, x, chunk / kSpanChunks, end / kSpanChunks,
                                     are_inside && rows[0].HasQuads(), sums);
        if (chunk < end) chunk = end / kSpanChunks * kSpanChunks;
      }
    } else if constexpr (kChunksAhead > 1) {
      for (; chunk + kChunksAhead <= end; chunk += kChunksAhead) {
        PAGEMILL_UNROLL
        for (int i = 0; i < kChunksAhead; ++i) multiply(chunk + i);
      }
    }
    for (; chunk < end; ++chunk) multiply(chunk);
  }
};

// A block for kOutputs outputs of kRows rows of x, which share tiles of weights.
template <typename P, int kRowWarps>
struct ManyRows {
  static constexpr bool kSharesK = false;
  static constexpr int kSharedBytes = 0;
  static constexpr int kOutputTiles = 2, kRowTiles = 4;  // of a warp
  static constexpr int kOutputWarps = 2;
  static constexpr int kOutputs = kOutputWarps * kOutputTiles * 16;
  static constexpr int kRows = kRowWarps * kRowTiles * 8;
  static constexpr int kThreads = 32 * kOutputWarps * kRowWarps;
  static constexpr int kLoads = kOutputs * 4 / kThreads;  // of a thread, for a tile
  // On a multiprocessor at least: a thread has 128 registers, and 168 with two rows of weights.
  static constexpr int kBlocks = kLoads == 1 ? 2 : 3;
  static constexpr bool kLoadsXAhead = kLoads > 1;  // as registers allow

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    using Columns = typename P::Columns;
    using Sum = typename P::Sum;
    PAGEMILL_SHARED(Columns[2][kOutputs][4], tiles);
    const int thread = static_cast<int>(ThreadIndex().x);
    const int group = Lane() / 4, in_group = Lane() % 4;
    const int warp_output = Warp() % kOutputWarps * (kOutputTiles * 16);
    const int64_t warp_row = first_row + Warp() / kOutputWarps * (kRowTiles * 8);
    const LaneRows<P, kRowTiles> x(p, warp_row);
    // A warp without rows multiplies nothing. The same in all lanes, as the compiler sees then.
    const bool has_rows = Ballot(AllLanes(), warp_row < p.rows) != 0;
    typename P::W::Row rows[kLoads];
    Columns next[kLoads];  // what the thread adds to a tile
    const auto load_next = [&](int chunk) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        next[i] = p.LoadW(rows[i], int64_t{chunk * 4 + thread % 4} * kWeightsAtOnce);
      }
    };
    PAGEMILL_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      rows[i] = RowOfWeights(p, first_output + (thread + i * kThreads) / 4);
    }
    load_next(0);
    Columns next_x[kRowTiles];
    if constexpr (kLoadsXAhead) x.Load(0, next_x);
    Sum totals[kOutputTiles][kRowTiles][4] = {}, sums[kOutputTiles][kRowTiles][4] = {};
    constexpr bool kHasNoOrder = std::is_integral_v<Sum>;  // so that parts are not kept apart
    auto& added = kHasNoOrder ? totals : sums;
    const int chunks = NumChunks(p);
    int split = 0;
    int end = EndOfSplit(chunks, split);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      auto& tile = tiles[chunk % 2];
      PAGEMILL_UNROLL
      for (int i = 0; i < kLoads; ++i) tile[(thread + i * kThreads) / 4][thread % 4] = next[i];
      SyncBlock();  // the tile is whole, and the one before it has been read
      Columns of_x[kRowTiles];
      if constexpr (kLoadsXAhead) {
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) of_x[j] = next_x[j];
      } else {
        x.Load(chunk, of_x);
      }
      if (chunk + 1 < chunks) {
        load_next(chunk + 1);
        if constexpr (kLoadsXAhead) x.Load(chunk + 1, next_x);
      }
      if (!has_rows) continue;
      PAGEMILL_UNROLL
      for (int i = 0; i < kOutputTiles; ++i) {
        const int output = warp_output + 16 * i + group;
        const Columns upper = tile[output][in_group], lower = tile[output + 8][in_group];
        MultiplyColumns(upper, lower, of_x, added[i]);
      }
      if constexpr (!kHasNoOrder) {
        if (chunk + 1 < end) continue;
        while (end <= chunk + 1 && split + 1 < kTileSplits) end = EndOfSplit(chunks, ++split);
        PAGEMILL_UNROLL
        for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
          const int i = e / (kRowTiles * 4), j = e / 4 % kRowTiles;
          totals[i][j][e % 4] += sums[i][j][e % 4];
          sums[i][j][e % 4] = 0;
        }
      }
    }
    PAGEMILL_UNROLL
    for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
      const int i = e / (kRowTiles * 4), j = e / 4 % kRowTiles, element = e % 4;
      StoreSum(p, warp_row + 8 * j + 2 * in_group + element % 2,
               first_output + warp_output + 16 * i + group + 8 * (element / 2),
               totals[i][j][element]);
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TENSOR_CORE_TILES_H_
