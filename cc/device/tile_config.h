// File: cc/device/tile_config.h
// The operand of LDTILECFG (Intel's manual, volume 1, 18.3): the shapes of the eight AMX tiles.
#ifndef PAGEMILL_CC_DEVICE_TILE_CONFIG_H_
#define PAGEMILL_CC_DEVICE_TILE_CONFIG_H_

#include <cstdint>

namespace pagemill::device {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_TILE_CONFIG_H_
