// File: cuda/ops/linear/matrix_core_tiles.h
// Tiles of products in bf16 on matrix cores of GPUs with 64 lanes (Mma16x16x32), for kernels. A
// product P is that of tensor_core_tiles.h, with Bf16Columns and float.
//
// Weights are the left factor. A warp has a part of K, of kWideSplits, for all rows of the tile; the
// parts of a sum are added in their order. So bits depend on the row of x and K alone, whatever the
// tile.
//
//   template <typename P, typename Tile>  // Tile: MatrixCoreTile<P, 1, 1>, ...
//   PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(P p) {
//     Tile::Multiply(p, BlockIndex().x * Tile::kOutputs, BlockIndex().y * Tile::kRows);
//   }
#ifndef PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

inline constexpr int kWideSplits = 4;

// A block for 16 * kOutputTiles outputs of 16 * kRowTiles rows of x.
template <typename P, int kOutputTiles, int kRowTiles>
struct MatrixCoreTile {
  static constexpr int kOutputs = 16 * kOutputTiles;
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kThreads = 64 * kWideSplits;
  static constexpr int kBlocks = 2;  // on a multiprocessor at least
  static constexpr int kSharedBytes = 0;

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    PAGEMILL_SHARED(float[kWideSplits][kRows][kOutputs], parts);
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
    float sums[kOutputTiles][kRowTiles][4] = {};
    const int chunks = NumChunks(p), end = EndOfSplit(chunks, Warp(), kWideSplits);
    for (int chunk = EndOfSplit(chunks, Warp() - 1, kWideSplits); chunk < end; ++chunk) {
      const int64_t own = int64_t{chunk} * 4 + part;  // of eight columns each
      Bf16Columns x[kRowTiles];
      PAGEMILL_UNROLL
      for (int j = 0; j < kRowTiles; ++j) x[j] = of_x[j][own];
      PAGEMILL_UNROLL
      for (int i = 0; i < kOutputTiles; ++i) {
        const Bf16Columns w = p.LoadW(of_w[i], own * kWeightsAtOnce);
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) Mma16x16x32(sums[i][j], w.pairs, x[j].pairs);
      }
    }
    PAGEMILL_UNROLL
    for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
      const int i = e / (kRowTiles * 4), j = e / 4 % kRowTiles;
      parts[Warp()][16 * j + place][16 * i + 4 * part + e % 4] = sums[i][j][e % 4];
    }
    SyncBlock();
    for (int e = static_cast<int>(ThreadIndex().x); e < kOutputs * kRows; e += kThreads) {
      const int row = e / kOutputs, output = e % kOutputs;
      float sum = 0;
      PAGEMILL_UNROLL
      for (int split = 0; split < kWideSplits; ++split) sum += parts[split][row][output];
      StoreSum(p, first_row + row, first_output + output, sum);
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_MATRIX_CORE_TILES_H_
