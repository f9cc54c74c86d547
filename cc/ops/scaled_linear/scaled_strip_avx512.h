// File: cc/ops/scaled_linear/scaled_strip_avx512.h
// Strips of x in units of four bytes, as the AVX-512 kernels broadcast them. A strip is divided
// into tiles of nearly equal heights, at most kTileN rows; a tile is
//
//   [rows] RowScale                        (of x in int8; else nothing)
//   [units of k][rows][4 bytes]
//
// A unit is a quad of int8, or a pair of bf16, of one row; k goes up to a multiple of
// kPaddedElements with zeros. Inline functions: for files compiled for AVX-512 only.
#ifndef PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_STRIP_AVX512_H_
#define PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_STRIP_AVX512_H_

#include <cstdint>

#include "cc/ops/linear/packed_kernel_set.h"
#include "cc/ops/scaled_linear/scaled_panel.h"

namespace pagemill::ops::scaled {
namespace {

constexpr int64_t kUnitBytes = 4;

// What integers of a row of x stand for, and what the offset of the weights adds to their sums.
struct RowScale {
  float scale;
  int32_t start;  // minus kInt8Offset times the sum of the row's integers
};

// The rows [begin, end) of a strip and where they are in it.
struct StripTile {
  int64_t begin;
  int64_t end;
  int64_t offset;
  int64_t rows() const { return end - begin; }
};

// The tiles of a strip of `n` rows with `units` units each and `row_bytes` bytes before them.
struct StripShape {
  int64_t n;
  int64_t units;
  int64_t row_bytes;
  int64_t tile_rows;

  int64_t tiles() const { return (n + tile_rows - 1) / tile_rows; }
  StripTile Tile(int64_t t) const {
    const int64_t begin = t * n / tiles();
    return {begin, (t + 1) * n / tiles(), begin * (units * kUnitBytes + row_bytes)};
  }
  int64_t bytes() const { return (n * (units * kUnitBytes + row_bytes) + 63) / 64 * 64; }
};

[[gnu::always_inline]] inline int64_t PaddedK(int64_t k) {
  return (k + kPaddedElements - 1) / kPaddedElements * kPaddedElements;
}

}  // namespace
}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_SCALED_LINEAR_SCALED_STRIP_AVX512_H_
