// File: cc/ops/tiles/tile_band.h
// AMX kernels are templates over `Tiles`, the eight tile registers: machine_tiles.h has those of
// the CPU, emulated_tiles.h emulates them in plain C++ for tests on machines without AMX.
// BandProducts multiplies a band of up to 32 rows with 32 columns, the product that most kernels
// consist of.
//
// `Tiles` has static members, with registers 0 to 7 as template arguments:
//   Configure(const device::TileConfig&), Release()
//   Zero<to>(), Load<to>(from, stride_bytes), Store<from>(to, stride_bytes)
//   Multiply<sums, a, b>()        TDPBF16PS
//   MultiplyBytes<sums, a, b>()   TDPBSUD: signed bytes of a, unsigned ones of b
//   MultiplyUnsigned<sums, a, b>()   TDPBUSD: unsigned bytes of a, signed ones of b
//
// Order of TDPBF16PS, from Intel's description: for the 32 elements of a row of a and a column of
// b, one chain of the even elements and one of the odd ones, ascending, each from 0; their sum is
// added to the output. It treats subnormal numbers, sums included, as 0.
#ifndef PAGEMILL_CC_OPS_TILES_TILE_BAND_H_
#define PAGEMILL_CC_OPS_TILES_TILE_BAND_H_

#include <cstdint>

#include "cc/device/tile_config.h"

namespace pagemill::ops {

enum class TileProduct { kBf16, kBytes };

// Sums in tiles 0 to 3 (two of the upper rows, two of the lower), rows in 4 and 5, columns in 6 and
// 7. All functions are members of a template over Tiles, so that files compiled for different
// instruction sets do not share them.
template <class Tiles, TileProduct kProduct>
struct BandProducts {
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kRowBytes = 64;
  static constexpr int64_t kBandRows = 2 * kTileRows;

  static int64_t RowsOfBand(int64_t n, int64_t begin) {
    return n - begin < kBandRows ? n - begin : kBandRows;
  }

  // If a band has no lower half, its tiles have no rows and are not used.
  static void Configure(int64_t rows) {
    const int64_t upper = rows < kTileRows ? rows : kTileRows;
    const int64_t lower = rows - upper;
    const int64_t heights[8] = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows};
    device::TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(heights[tile]);
      config.row_bytes[tile] = static_cast<uint16_t>(heights[tile] == 0 ? 0 : kRowBytes);
    }
    Tiles::Configure(config);
  }

  // kTwo, here and below: the band has more rows than one tile.
  template <bool kTwo>
  static void Clear() {
    Tiles::template Zero<0>();
    Tiles::template Zero<1>();
    if constexpr (kTwo) {
      Tiles::template Zero<2>();
      Tiles::template Zero<3>();
    }
  }

  // Adds the products of 64 bytes of each row with two tiles of columns. Strides are in bytes: from
  // row to row, and from one row of a tile of columns to the next.
  template <bool kTwo>
  static void Add(const uint8_t* rows, int64_t row_stride, const uint8_t* left,
                  const uint8_t* right, int64_t column_stride) {
    Tiles::template Load<4>(rows, row_stride);
    Tiles::template Load<6>(left, column_stride);
    Tiles::template Load<7>(right, column_stride);
    Multiply<0, 4, 6>();
    Multiply<1, 4, 7>();
    if constexpr (kTwo) {
      Tiles::template Load<5>(rows + kTileRows * row_stride, row_stride);
      Multiply<2, 5, 6>();
      Multiply<3, 5, 7>();
    }
  }

 private:
  template <int kSums, int kRows, int kColumns>
  static void Multiply() {
    if constexpr (kProduct == TileProduct::kBf16) {
      Tiles::template Multiply<kSums, kRows, kColumns>();
    } else {
      Tiles::template MultiplyBytes<kSums, kRows, kColumns>();
    }
  }
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TILES_TILE_BAND_H_
