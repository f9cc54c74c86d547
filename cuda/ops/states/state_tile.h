// File: cuda/ops/states/state_tile.h
// Columns of a matrix of state, [rows, columns] of floats, in the registers of a block. Four
// neighbouring lanes share a column: each has quads of its rows, every fourth quad.
//
//   PAGEMILL_SHARED(StateQuad[kMaxStateRows / 4], b);   // a vector of `rows` elements, then zeros
//   StateTile<8> tile(rows, columns, BlockIndex().x);
//   tile.Load(source);                                  // zeros if null
//   float sum = 0;
//   tile.ForEachQuad([&](float* h, int quad) {
//     for (int i = 0; i < 4; ++i) sum += h[i] * b[quad].values[i];
//   });
//   sum = tile.ColumnSum(sum);                          // of the column, the same in its lanes
//
// Rows beyond the matrix are 0. Every lane of a warp calls ColumnSum().
#ifndef PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_
#define PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_

#include <cstdint>

#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

using StateQuad = Vector<float, 4>;

inline constexpr int kStateLanes = 4;         // of a column
inline constexpr int kMaxStateRows = 256;     // 16 quads a lane
inline constexpr int kMaxStateColumns = 64;   // of a block
inline constexpr int64_t kMaxTileThreads = kMaxStateColumns * kStateLanes;

// Blocks and threads for each matrix and request.
struct StateTileSizes {
  uint32_t blocks, threads;
};
inline StateTileSizes TilesOf(int64_t columns) {
  const uint32_t threads = BlockThreads(columns * kStateLanes, /*per_thread=*/1, kMaxTileThreads);
  return {DivideUp(columns * kStateLanes, threads), threads};
}

template <int kQuads>
class StateTile {
 public:
  // Columns from block * BlockSize().x / kStateLanes on.
  PAGEMILL_DEVICE StateTile(int rows, int columns, int block)
      : rows_(rows),
        columns_(columns),
        in_block_(static_cast<int>(ThreadIndex().x) / kStateLanes),
        lane_(static_cast<int>(ThreadIndex().x) % kStateLanes),
        column_(block * (static_cast<int>(BlockSize().x) / kStateLanes) + in_block_) {}

  PAGEMILL_DEVICE int column() const { return column_; }
  PAGEMILL_DEVICE int column_in_block() const { return in_block_; }
  PAGEMILL_DEVICE bool has_column() const { return column_ < columns_; }
  // One lane of each column.
  PAGEMILL_DEVICE bool is_first() const { return lane_ == 0 && has_column(); }

  PAGEMILL_DEVICE void Load(const float* matrix) {
    ForEachQuad([&](float* h, int quad) {
      for (int i = 0; i < 4; ++i) {
        const int row = quad * 4 + i;
        const bool stored = matrix != nullptr && row < rows_ && has_column();
        h[i] = stored ? matrix[int64_t{row} * columns_ + column_] : 0;
      }
    });
  }

  PAGEMILL_DEVICE void Store(float* matrix) {
    ForEachQuad([&](float* h, int quad) {
      for (int i = 0; i < 4; ++i) {
        const int row = quad * 4 + i;
        if (row < rows_ && has_column()) matrix[int64_t{row} * columns_ + column_] = h[i];
      }
    });
  }

  // Calls visit(elements, quad) for the quads of the lane: rows from 4 * quad on.
  template <typename Visit>
  PAGEMILL_DEVICE void ForEachQuad(const Visit& visit) {
    PAGEMILL_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      const int quad = q * kStateLanes + lane_;
      if (q * kStateLanes * 4 < rows_) visit(elements_[q], quad);
    }
  }

  PAGEMILL_DEVICE float ColumnSum(float value) const {
    for (int bits = 1; bits < kStateLanes; bits *= 2) {
      value += ShuffleXor(AllLanes(), value, bits);
    }
    return value;
  }

 private:
  const int rows_, columns_, in_block_, lane_, column_;
  float elements_[kQuads][4];
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_
