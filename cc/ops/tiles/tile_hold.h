// File: cc/ops/tiles/tile_hold.h
// Keeps tiles in use across a pause, to test how the operating system preserves them. Linked on
// x86-64 only; calling it requires a CPU with AMX.
#ifndef PAGEMILL_CC_OPS_TILES_TILE_HOLD_H_
#define PAGEMILL_CC_OPS_TILES_TILE_HOLD_H_

#include <cstdint>

#include "cc/device/tile_config.h"

namespace pagemill::ops {

// Eight tiles at their largest; rows and bytes beyond a tile's configuration are not touched.
struct alignas(64) TileImage {
  uint8_t bytes[8][16][64];
};

// Configures the tiles, loads `before`, calls `pause`, stores them to `after`.
void HoldTiles(const device::TileConfig& config, const TileImage& before, void (*pause)(),
               TileImage* after);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TILES_TILE_HOLD_H_
