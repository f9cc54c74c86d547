// File: cc/ops/tiles/tile_config.h
// What kernels in tiles of AMX are written over: `Tiles`, the eight tile registers. machine_tiles.h
// has those of the CPU, emulated_tiles.h others in plain C++ for tests on machines without.
//
// `Tiles` has static members, with registers 0 to 7 as template arguments:
//   Configure(const TileConfig&), Release()
//   Zero<to>(), Load<to>(from, stride_bytes), Store<from>(to, stride_bytes)
//   Multiply<sums, a, b>()        TDPBF16PS
//   MultiplyBytes<sums, a, b>()   TDPBSUD: signed bytes of a, unsigned ones of b
//   MultiplyUnsigned<sums, a, b>()   TDPBUSD: unsigned bytes of a, signed ones of b
//
// Order of TDPBF16PS, from Intel's description: of the 32 elements of a row of a and those of a
// column of b one chain of the even ones and one of the odd ones, ascending, each from 0; their sum
// is added to the output's. It takes subnormal numbers, sums included, for 0.
#ifndef PAGEMILL_CC_OPS_TILES_TILE_CONFIG_H_
#define PAGEMILL_CC_OPS_TILES_TILE_CONFIG_H_

#include <cstdint>

namespace pagemill::ops {

// The operand of LDTILECFG (Intel's manual, volume 1, 18.3).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TILES_TILE_CONFIG_H_
