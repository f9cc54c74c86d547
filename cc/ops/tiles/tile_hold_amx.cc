#include <cstdint>
#include <utility>

#include "cc/ops/tiles/machine_tiles.h"
#include "cc/ops/tiles/tile_hold.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kStrideBytes = sizeof(TileImage::bytes[0][0]);

template <int... kTiles>
void Load(const TileImage& from, std::integer_sequence<int, kTiles...>) {
  (MachineTiles::Load<kTiles>(from.bytes[kTiles], kStrideBytes), ...);
}

template <int... kTiles>
void Store(TileImage* to, std::integer_sequence<int, kTiles...>) {
  (MachineTiles::Store<kTiles>(to->bytes[kTiles], kStrideBytes), ...);
}

}  // namespace

void HoldTiles(const device::TileConfig& config, const TileImage& before, void (*pause)(),
               TileImage* after) {
  constexpr std::make_integer_sequence<int, 8> kAll;
  MachineTiles::Configure(config);
  Load(before, kAll);
  pause();
  Store(after, kAll);
  MachineTiles::Release();
}

}  // namespace pagemill::ops
