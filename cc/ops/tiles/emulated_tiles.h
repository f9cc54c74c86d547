// File: cc/ops/tiles/emulated_tiles.h
// The tile registers of tile_band.h, in plain C++ according to Intel's description of the
// instructions, for tests on machines without AMX. Stricter than the CPU: using a tile that is not
// configured, or tiles with mismatched shapes, fails the test.
#ifndef PAGEMILL_CC_OPS_TILES_EMULATED_TILES_H_
#define PAGEMILL_CC_OPS_TILES_EMULATED_TILES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "cc/device/tile_config.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops {

class EmulatedTiles {
 public:
  static void Configure(const device::TileConfig& config) {
    ASSERT_EQ(config.palette, 1);
    for (int tile = 0; tile < 8; ++tile) {
      ASSERT_LE(config.rows[tile], 16);
      ASSERT_LE(config.row_bytes[tile], 64);
      ASSERT_EQ(config.rows[tile] == 0, config.row_bytes[tile] == 0);
      tiles_[tile] = {config.rows[tile], config.row_bytes[tile], {}};
    }
    ++configurations_;
    configured_ = true;
  }

  static void Release() {
    for (Tile& tile : tiles_) tile = {};
    configured_ = false;
  }

  // Whether the tiles of the calling thread are configured, and how often they have been.
  static bool Configured() { return configured_; }
  static int64_t Configurations() { return configurations_; }

  template <int kTo>
  static void Zero() {
    ASSERT_GT(tiles_[kTo].rows, 0) << "tile " << kTo << " is not configured";
    std::memset(tiles_[kTo].bytes, 0, sizeof(tiles_[kTo].bytes));
  }

  template <int kTo>
  static void Load(const void* from, int64_t stride_bytes) {
    Tile& tile = tiles_[kTo];
    ASSERT_GT(tile.rows, 0) << "tile " << kTo << " is not configured";
    for (int row = 0; row < tile.rows; ++row) {
      std::memcpy(tile.bytes[row], static_cast<const uint8_t*>(from) + row * stride_bytes,
                  tile.row_bytes);
    }
  }

  template <int kFrom>
  static void Store(void* to, int64_t stride_bytes) {
    const Tile& tile = tiles_[kFrom];
    ASSERT_GT(tile.rows, 0) << "tile " << kFrom << " is not configured";
    for (int row = 0; row < tile.rows; ++row) {
      std::memcpy(static_cast<uint8_t*>(to) + row * stride_bytes, tile.bytes[row], tile.row_bytes);
    }
  }

  // Flushes subnormal numbers, as the instruction does, only where the caller's arithmetic does.
  template <int kSums, int kA, int kB>
  static void Multiply() {
    Tile& sums = tiles_[kSums];
    const Tile& a = tiles_[kA];
    const Tile& b = tiles_[kB];
    ASSERT_NO_FATAL_FAILURE(CheckShapes(sums, a, b));
    for (int row = 0; row < sums.rows; ++row) {
      for (int column = 0; column < sums.row_bytes / 4; ++column) {
        float even = 0;
        float odd = 0;
        for (int pair = 0; pair < b.rows; ++pair) {
          even = __builtin_fmaf(Element(a, row, 2 * pair), Element(b, pair, 2 * column), even);
          odd =
              __builtin_fmaf(Element(a, row, 2 * pair + 1), Element(b, pair, 2 * column + 1), odd);
        }
        float sum;
        std::memcpy(&sum, sums.bytes[row] + 4 * column, sizeof(sum));
        sum += even + odd;
        std::memcpy(sums.bytes[row] + 4 * column, &sum, sizeof(sum));
      }
    }
  }

  template <int kSums, int kA, int kB>
  static void MultiplyBytes() {
    MultiplyIntegers<kSums, kA, kB, int8_t, uint8_t>();
  }

  template <int kSums, int kA, int kB>
  static void MultiplyUnsigned() {
    MultiplyIntegers<kSums, kA, kB, uint8_t, int8_t>();
  }

 private:
  struct Tile {
    int rows;
    int row_bytes;
    uint8_t bytes[16][64];
  };

  template <int kSums, int kA, int kB, typename A, typename B>
  static void MultiplyIntegers() {
    Tile& sums = tiles_[kSums];
    const Tile& a = tiles_[kA];
    const Tile& b = tiles_[kB];
    ASSERT_NO_FATAL_FAILURE(CheckShapes(sums, a, b));
    for (int row = 0; row < sums.rows; ++row) {
      for (int column = 0; column < sums.row_bytes / 4; ++column) {
        uint32_t sum;  // wraps, as the instruction's does
        std::memcpy(&sum, sums.bytes[row] + 4 * column, sizeof(sum));
        for (int i = 0; i < a.row_bytes; ++i) {
          sum += static_cast<uint32_t>(static_cast<A>(a.bytes[row][i]) *
                                       static_cast<B>(b.bytes[i / 4][4 * column + i % 4]));
        }
        std::memcpy(sums.bytes[row] + 4 * column, &sum, sizeof(sum));
      }
    }
  }

  static void CheckShapes(const Tile& sums, const Tile& a, const Tile& b) {
    ASSERT_GT(sums.rows, 0) << "not configured";
    ASSERT_EQ(sums.rows, a.rows);
    ASSERT_EQ(sums.row_bytes, b.row_bytes);
    ASSERT_EQ(a.row_bytes / 4, b.rows);
  }

  static float Element(const Tile& tile, int row, int column) {
    uint16_t bits;
    std::memcpy(&bits, tile.bytes[row] + 2 * column, sizeof(bits));
    return Bf16ToFloat(bits);
  }

  inline static thread_local Tile tiles_[8] = {};
  inline static thread_local bool configured_ = false;
  inline static thread_local int64_t configurations_ = 0;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TILES_EMULATED_TILES_H_
