// File: cuda/ops/states/state_tile.h
// Columns of a matrix of state, [rows, columns] of floats, in the registers of a block. kLanes
// neighbouring lanes share a column: each has quads of its rows, every kLanes-th quad.
//
//   PAGEMILL_SHARED(StateQuad[kMaxStateRows / 4], b);   // a vector of `rows` elements, then zeros
//   StateTile<4> tile(rows, columns, BlockIndex().x);
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

inline constexpr int kStateQuads = 8;        // of a lane
inline constexpr int kMaxStateRows = 256;    // with 8 lanes
inline constexpr int kMaxStateColumns = 64;  // of a block, with 4 lanes
inline constexpr int64_t kMaxTileThreads = 256;

// Lanes of a column, blocks for each matrix and request, and their threads.
struct StateTileSizes {
  uint32_t lanes, blocks, threads;
};
inline StateTileSizes TilesOf(int64_t rows, int64_t columns) {
  const int64_t lanes = rows <= 4 * kStateQuads * 4 ? 4 : 8;
  const uint32_t threads = BlockThreads(columns * lanes, /*per_thread=*/1, kMaxTileThreads);
  return {static_cast<uint32_t>(lanes), DivideUp(columns * lanes, threads), threads};
}

// Rows with the zeros that follow them, in vectors.
PAGEMILL_DEVICE int PaddedRows(int rows, int lanes) {
  return (rows + 4 * lanes - 1) / (4 * lanes) * (4 * lanes);
}

template <int kLanes>
class StateTile {
 public:
  static constexpr int kNumLanes = kLanes;

  // Columns from block * BlockSize().x / kLanes on.
  PAGEMILL_DEVICE StateTile(int rows, int columns, int block)
      : rows_(rows),
        columns_(columns),
        in_block_(static_cast<int>(ThreadIndex().x) / kLanes),
        lane_(static_cast<int>(ThreadIndex().x) % kLanes),
        column_(block * (static_cast<int>(BlockSize().x) / kLanes) + in_block_) {}

  PAGEMILL_DEVICE int column() const { return column_; }
  PAGEMILL_DEVICE int column_in_block() const { return in_block_; }
  PAGEMILL_DEVICE bool has_column() const { return column_ < columns_; }
  // One lane of each column.
  PAGEMILL_DEVICE bool is_first() const { return lane_ == 0 && has_column(); }

  PAGEMILL_DEVICE void Load(const float* matrix) {
    int at = FirstElement();  // counted up: offsets of all elements would take registers
    ForEachQuad([&](float* h, int quad) {
      for (int i = 0; i < 4; ++i, at += columns_) {
        h[i] = matrix != nullptr && IsStored(quad * 4 + i) ? matrix[at] : 0;
      }
      at += (kLanes - 1) * 4 * columns_;
    });
  }

  PAGEMILL_DEVICE void Store(float* matrix) {
    int at = FirstElement();
    ForEachQuad([&](float* h, int quad) {
      for (int i = 0; i < 4; ++i, at += columns_) {
        if (IsStored(quad * 4 + i)) matrix[at] = h[i];
      }
      at += (kLanes - 1) * 4 * columns_;
    });
  }

  // Calls visit(elements, quad) for the quads of the lane: rows from 4 * quad on.
  template <typename Visit>
  PAGEMILL_DEVICE void ForEachQuad(const Visit& visit) {
    PAGEMILL_UNROLL
    for (int q = 0; q < kStateQuads; ++q) {
      const int quad = q * kLanes + lane_;
      if (q * kLanes * 4 < rows_) visit(elements_[q], quad);
    }
  }

  PAGEMILL_DEVICE float ColumnSum(float value) const {
    for (int bits = 1; bits < kLanes; bits *= 2) {
      value += ShuffleXor(AllLanes(), value, bits);
    }
    return value;
  }

 private:
  PAGEMILL_DEVICE int FirstElement() const { return lane_ * 4 * columns_ + column_; }
  PAGEMILL_DEVICE bool IsStored(int row) const { return row < rows_ && has_column(); }

  const int rows_, columns_, in_block_, lane_, column_;
  float elements_[kStateQuads][4];
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_
