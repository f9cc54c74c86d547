// File: cuda/ops/linear/matrix_core_tiles.h
// Tiles of products in bf16 on matrix cores (gpu_matrix_cores.h), for kernels. A product P is that
// of tensor_core_tiles.h, with Bf16Columns and float.
//
// Weights are the left factor. A warp has one of kWideSplits parts of K, for all rows of the tile;
// the parts of a sum are added in their order. So bits depend on the row of x and K alone, whatever
// the tile.
//
//   template <typename P, typename Tile>  // Tile: MatrixCoreTile<P, /*kLanes=*/64, 1, 1>, ...
//   PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(P p) {
//     Tile::Multiply(p, BlockIndex().x * Tile::kOutputs, BlockIndex().y * Tile::kRows);
//   }
#ifndef PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_

#include <cstdint>

#include "cuda/gpu_matrix_cores.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

inline constexpr int kWideSplits = 4;

// Stores sums of which each of kWideSplits warps has a part.
template <int kLanes, typename P, int kOutputTiles, int kRowTiles, int kSums>
PAGEMILL_DEVICE void StoreSplitSums(const P& p, const float (&sums)[kOutputTiles][kRowTiles][kSums],
                                    int64_t first_output, int64_t first_row) {
  constexpr int kOutputs = 16 * kOutputTiles, kRows = 16 * kRowTiles;
  PAGEMILL_SHARED(float[kWideSplits][kRows][kOutputs], parts);
  PAGEMILL_UNROLL
  for (int i = 0; i < kOutputTiles; ++i) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      PAGEMILL_UNROLL
      for (int e = 0; e < kSums; ++e) {
        const int output = 16 * i + MatrixCores<kLanes>::RowOfSum(e);
        parts[Warp()][16 * j + Lane() % 16][output] = sums[i][j][e];
      }
    }
  }
  SyncBlock();
  for (int e = static_cast<int>(ThreadIndex().x); e < kOutputs * kRows;
       e += kLanes * kWideSplits) {
    const int row = e / kOutputs, output = e % kOutputs;
    float sum = 0;
    PAGEMILL_UNROLL
    for (int split = 0; split < kWideSplits; ++split) sum += parts[split][row][output];
    StoreSum(p, first_row + row, first_output + output, sum);
  }
}

// A block of warps of kLanes, for 16 * kOutputTiles outputs of 16 * kRowTiles rows of x.
template <int kLanes, int kOutputTiles, int kRowTiles>
struct MatrixCoreTileShape {
  static constexpr int kOutputs = 16 * kOutputTiles;
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kThreads = kLanes * kWideSplits;
  static constexpr int kBlocks = 2;  // on a multiprocessor at least
  static constexpr int kSharedBytes = 0;
};

template <typename P, int kLanes, int kOutputTiles, int kRowTiles>
struct MatrixCoreTile : MatrixCoreTileShape<kLanes, kOutputTiles, kRowTiles> {
  using Cores = MatrixCores<kLanes>;

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    const int place = Lane() % 16, part = Lane() / 16;
    typename P::W::Row of_w[kOutputTiles];
    PAGEMILL_UNROLL
    for (int i = 0; i < kOutputTiles; ++i) {
      of_w[i] = RowOfWeights(p, first_output + 16 * i + place);
    }
    const Bf16Columns* of_x[kRowTiles];
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const int64_t row = first_row + 16 * j + place;
      of_x[j] = p.RowOfX(row < p.rows ? row : p.rows - 1);
    }
    float sums[kOutputTiles][kRowTiles][Cores::kSums] = {};
    // Of columns that a product has at once.
    constexpr int kPieces = kTensorCoreColumns / Cores::kColumns;
    const int chunks = NumChunks(p);
    const int end = EndOfSplit(chunks, Warp(), kWideSplits) * kPieces;
    for (int i = EndOfSplit(chunks, Warp() - 1, kWideSplits) * kPieces; i < end; ++i) {
      const int64_t own = int64_t{i} * Cores::kParts + part;  // of eight columns each
      Bf16Columns x[kRowTiles];
      PAGEMILL_UNROLL
      for (int j = 0; j < kRowTiles; ++j) x[j] = of_x[j][own];
      PAGEMILL_UNROLL
      for (int o = 0; o < kOutputTiles; ++o) {
        const Bf16Columns w = p.LoadW(of_w[o], own * kWeightsAtOnce);
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) Cores::Multiply(w.pairs, x[j].pairs, sums[o][j]);
      }
    }
    StoreSplitSums<kLanes>(p, sums, first_output, first_row);
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_
