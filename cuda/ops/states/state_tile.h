// File: cuda/ops/states/state_tile.h
// Columns of a matrix of state, [rows, columns] of floats, in the registers of a block. kRows / 16
// neighbouring lanes share a pair of columns: each has 16 rows of both, in quads, and one of the
// two is its own.
//
//   PAGEMILL_SHARED(StateQuad[128 / 4], b);   // a vector of `rows` elements, then zeros
//   StateTile<128> tile(rows, columns, BlockIndex().x);
//   tile.Load(source);                        // zeros if null
//   float sums[2] = {};
//   const StateRows of_lane = tile.RowsOf(b);
//   tile.ForEachRow([&](float (&h)[2], int r) {
//     for (int c = 0; c < 2; ++c) sums[c] += h[c] * of_lane[r];
//   });
//   const float sum = tile.Sum(sums);         // over all rows, of column tile.column()
//
// Rows beyond the matrix are 0. Every lane of a warp calls Sum() and Both().
#ifndef PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_
#define PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

using StateQuad = Vector<float, 4>;

inline constexpr int kStateThreads = 128;  // of a block
inline constexpr int kMaxStateRows = 256;  // of a matrix
inline constexpr int kStateRows = 16;      // of a lane

// What a vector of `rows` elements has for the rows of a lane.
struct StateRows {
  float values[kStateRows];
  PAGEMILL_DEVICE float operator[](int r) const { return values[r]; }
};

// A matrix has at most kRows rows.
template <int kRows>
class StateTile {
 public:
  static constexpr int kLanes = kRows / kStateRows;
  static constexpr int kColumns = kStateThreads / kLanes * 2;  // of a block

  // Columns from block * kColumns on.
  PAGEMILL_DEVICE StateTile(int rows, int columns, int block)
      : rows_(rows),
        columns_(columns),
        lane_(static_cast<int>(ThreadIndex().x) % kLanes),
        pair_(block * kColumns + static_cast<int>(ThreadIndex().x) / kLanes * 2) {}

  // The lane's own.
  PAGEMILL_DEVICE int column() const { return pair_ + lane_ % 2; }
  PAGEMILL_DEVICE int column_in_block() const { return column() % kColumns; }
  // Whether the matrix has any of the warp's columns: by a vote, whose result compilers know to be
  // the same for all lanes, so that shuffles may depend on it.
  PAGEMILL_DEVICE bool HasColumnsOfWarp() const {
    return Ballot(AllLanes(), column() < columns_) != 0;
  }
  // One lane of those whose own a column is, if the matrix has it.
  PAGEMILL_DEVICE bool is_first() const { return lane_ < 2 && column() < columns_; }

  PAGEMILL_DEVICE void Load(const float* matrix) {
    if (matrix == nullptr) {
      ForEachRow([](float (&h)[2], int) { h[0] = h[1] = 0; });
    } else if (HasPairs(matrix)) {
      ForEachElement([&](float (&h)[2], bool exists, int at) {
        const Vector<float, 2> loaded =
            exists ? reinterpret_cast<const Vector<float, 2>&>(matrix[at]) : Vector<float, 2>{};
        for (int c = 0; c < 2; ++c) h[c] = loaded.values[c];
      });
    } else {
      ForEachElement([&](float (&h)[2], bool exists, int at) {
        for (int c = 0; c < 2; ++c) h[c] = exists && pair_ + c < columns_ ? matrix[at + c] : 0;
      });
    }
  }

  PAGEMILL_DEVICE void Store(float* matrix) {
    if (HasPairs(matrix)) {
      ForEachElement([&](const float (&h)[2], bool exists, int at) {
        if (exists) reinterpret_cast<Vector<float, 2>&>(matrix[at]) = {h[0], h[1]};
      });
    } else {
      ForEachElement([&](const float (&h)[2], bool exists, int at) {
        for (int c = 0; c < 2; ++c) {
          if (exists && pair_ + c < columns_) matrix[at + c] = h[c];
        }
      });
    }
  }

  // Calls visit(elements, r) with both columns' elements of row r of the lane.
  template <typename Visit>
  PAGEMILL_DEVICE void ForEachRow(const Visit& visit) {
    PAGEMILL_UNROLL
    for (int r = 0; r < kStateRows; ++r) visit(elements_[r], r);
  }

  PAGEMILL_DEVICE StateRows RowsOf(const StateQuad* vector) const {
    StateRows rows;
    PAGEMILL_UNROLL
    for (int q = 0; q < kStateRows / 4; ++q) {
      const StateQuad quad = vector[q * kLanes + lane_];
      for (int i = 0; i < 4; ++i) rows.values[q * 4 + i] = quad.values[i];
    }
    return rows;
  }

  // Sums over all rows of what the lanes have of each column: that of the lane's own.
  PAGEMILL_DEVICE float Sum(const float (&parts)[2]) const {
    const bool odd = lane_ % 2 != 0;
    float sum = odd ? parts[1] : parts[0];
    sum += ShuffleXor(AllLanes(), odd ? parts[0] : parts[1], 1);
    for (int bits = 2; bits < kLanes; bits *= 2) sum += ShuffleXor(AllLanes(), sum, bits);
    return sum;
  }

  // What the lanes have of their own columns: of both columns.
  PAGEMILL_DEVICE Vector<float, 2> Both(float own) const {
    const bool odd = lane_ % 2 != 0;
    const float other = ShuffleXor(AllLanes(), own, 1);
    return {odd ? other : own, odd ? own : other};
  }

 private:
  // Calls visit(elements, exists, at): `at` is the offset of the first of both elements of a row.
  template <typename Visit>
  PAGEMILL_DEVICE void ForEachElement(const Visit& visit) {
    int at = lane_ * 4 * columns_ + pair_;  // counted up: offsets of all rows would take registers
    PAGEMILL_UNROLL
    for (int q = 0; q < kStateRows / 4; ++q) {
      for (int i = 0; i < 4; ++i, at += columns_) {
        const bool exists = (q * kLanes + lane_) * 4 + i < rows_ && pair_ < columns_;
        visit(elements_[q * 4 + i], exists, at);
      }
      at += (kLanes - 1) * 4 * columns_;
    }
  }

  // Whether both elements of a row are one aligned load.
  PAGEMILL_DEVICE bool HasPairs(const float* matrix) const {
    return columns_ % 2 == 0 && reinterpret_cast<uintptr_t>(matrix) % sizeof(Vector<float, 2>) == 0;
  }

  const int rows_, columns_, lane_, pair_;
  float elements_[kStateRows][2];
};

// Calls body.template operator()<kRows>(shape) with the least kRows for matrices [rows, columns], a
// power of two of at least kFewest, and blocks (head and columns, request) for a matrix of each
// head and request.
template <int kFewest = kMaxStateRows / 2, typename Body>
void WithStateTiles(int64_t rows, int64_t columns, int64_t heads, int64_t requests,
                    const Body& body) {
  if constexpr (kFewest < kMaxStateRows) {
    if (rows > kFewest) {
      return WithStateTiles<2 * kFewest>(rows, columns, heads, requests, body);
    }
  }
  const uint32_t blocks = DivideUp(columns, StateTile<kFewest>::kColumns);
  body.template operator()<kFewest>(LaunchShape{
      .blocks = {static_cast<uint32_t>(heads) * blocks, static_cast<uint32_t>(requests)},
      .threads = {kStateThreads}});
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_TILE_H_
