// File: cuda/ops/linear/f8_matrix_core_tiles.h
// Tiles of products in e4m3 on matrix cores (gpu_matrix_cores.h), for kernels: as matrix_core_tiles.h
// has them in bf16, with K in stages of kF8Columns columns, in which a row of x has a scale and 16
// outputs have one. Warps have parts of whole stages.
//
// A product P has
//
//   int64_t rows, outputs, columns      N, M, K
//   const uint8_t* RowOfX(row)          aligned to 16 bytes
//   const float* ScalesOfX(row)         of its stages
//   const uint8_t* RowOfW(output)       aligned to 16 bytes
//   bool HasScalesOfRows()              weights have a scale for each output instead
//   float ScaleOfW(output, stage)
//   Target TargetOf(row)                where results of a row go
//   void Store(target, output, sum)     for rows and outputs that exist; multiplies by scales of rows
#ifndef PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORE_TILES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORE_TILES_H_

#include <cstdint>

#include "cuda/gpu_matrix_cores.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/f8_stages.h"
#include "cuda/ops/linear/matrix_core_tiles.h"

namespace pagemill::gpu {

template <typename P, int kLanes, int kOutputTiles, int kRowTiles>
struct F8MatrixCoreTile : MatrixCoreTileShape<kLanes, kOutputTiles, kRowTiles> {
  using Cores = MatrixCores<kLanes>;

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    const uint8_t* of_w[kOutputTiles];
    PAGEMILL_UNROLL
    for (int i = 0; i < kOutputTiles; ++i) of_w[i] = p.RowOfW(OutputOf(p, first_output, i));
    const uint8_t* of_x[kRowTiles];
    const float* scales[kRowTiles];
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const int64_t row = first_row + 16 * j + Lane() % 16, read = row < p.rows ? row : p.rows - 1;
      of_x[j] = p.RowOfX(read);
      scales[j] = p.ScalesOfX(read);
    }
    Sums sums = {};
    const int stages = static_cast<int>(p.columns / kF8Columns);
    const int end = EndOfSplit(stages, Warp(), kWideSplits);
    for (int stage = EndOfSplit(stages, Warp() - 1, kWideSplits); stage < end; ++stage) {
      Sums of_stage = {};
      MultiplyStage(of_w, of_x, stage, of_stage);
      PAGEMILL_UNROLL
      for (int i = 0; i < kOutputTiles; ++i) {
        const float of_outputs =
            p.HasScalesOfRows() ? 1 : p.ScaleOfW(OutputOf(p, first_output, i), stage);
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
          const float scale = of_outputs * Cores::Float8Unit() * scales[j][stage];
          PAGEMILL_UNROLL
          for (int e = 0; e < Cores::kSums; ++e) {
            sums[i][j][e] = fmaf(of_stage[i][j][e], scale, sums[i][j][e]);
          }
        }
      }
    }
    StoreSplitSums<kLanes>(p, sums, first_output, first_row);
  }

 private:
  using Sums = float[kOutputTiles][kRowTiles][Cores::kSums];
  // Sixteen columns of a row: eight for each of two products.
  static constexpr int kColumnsAtOnce = 16;
  using Columns = Vector<uint32_t, 4>;

  // That of the lane in tile i; the last for those beyond it.
  PAGEMILL_DEVICE static int64_t OutputOf(const P& p, int64_t first_output, int i) {
    const int64_t output = first_output + 16 * i + Lane() % 16;
    return output < p.outputs ? output : p.outputs - 1;
  }

  PAGEMILL_DEVICE static void MultiplyStage(const uint8_t* const (&of_w)[kOutputTiles],
                                            const uint8_t* const (&of_x)[kRowTiles], int stage,
                                            Sums& sums) {
    PAGEMILL_UNROLL
    for (int step = 0; step < kF8Columns; step += kColumnsAtOnce * Cores::kParts) {
      const int64_t own = stage * kF8Columns + step + kColumnsAtOnce * (Lane() / 16);
      Columns x[kRowTiles];
      PAGEMILL_UNROLL
      for (int j = 0; j < kRowTiles; ++j) x[j] = *reinterpret_cast<const Columns*>(of_x[j] + own);
      PAGEMILL_UNROLL
      for (int i = 0; i < kOutputTiles; ++i) {
        const auto w = *reinterpret_cast<const Columns*>(of_w[i] + own);
        PAGEMILL_UNROLL
        for (int half = 0; half < 4; half += 2) {
          const uint32_t a[2] = {w.values[half], w.values[half + 1]};
          PAGEMILL_UNROLL
          for (int j = 0; j < kRowTiles; ++j) {
            const uint32_t b[2] = {x[j].values[half], x[j].values[half + 1]};
            Cores::Multiply(a, b, sums[i][j]);
          }
        }
      }
    }
  }
};

// For up to 16 rows, and for more. Sums of a stage are beside those of all: warps of 32 lanes have no
// registers for more.
template <typename P, int kLanes>
using FewF8Rows = F8MatrixCoreTile<P, kLanes, 4, 1>;
template <typename P, int kLanes>
using ManyF8Rows = F8MatrixCoreTile<P, kLanes, 2, kLanes == 64 ? 4 : 2>;

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_F8_MATRIX_CORE_TILES_H_
