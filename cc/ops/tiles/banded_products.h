// File: cc/ops/tiles/banded_products.h
// Multiplies a chunk of rows with a slice of 32 columns, in bands of tiles (tile_band.h). Layouts,
// with blocks of 64 bytes of k (32 bf16 or 64 bytes):
//
//   rows      band after band, each [blocks][rows of the band][64 bytes]
//   columns   [blocks][16][2 tiles side by side][64 bytes]
//
// With several bands, k is divided into parts: a part of the slice stays in L1 while it is
// multiplied with each band in turn. It takes 18 KB, and so does the part of a band; whole slices
// of long rows would be read from L2 for each band, which limits tiles to 70 % of their rate.
// Between parts, sums of bands are stored to memory unchanged, so parts do not change bits.
#ifndef PAGEMILL_CC_OPS_TILES_BANDED_PRODUCTS_H_
#define PAGEMILL_CC_OPS_TILES_BANDED_PRODUCTS_H_

#include <cstdint>

#include "cc/ops/tiles/tile_band.h"

namespace pagemill::ops {

// All functions are members of a template over Tiles, so that files compiled for different
// instruction sets do not share them.
template <class Tiles, TileProduct kProduct>
struct BandedProducts {
  using Band = BandProducts<Tiles, kProduct>;
  static constexpr int64_t kRowBytes = Band::kRowBytes;
  static constexpr int64_t kBandRows = Band::kBandRows;
  static constexpr int64_t kMaxRows = 4 * kBandRows;
  static constexpr int64_t kColumnStride = 2 * kRowBytes;
  static constexpr int64_t kBlockBytes = Band::kTileRows * kColumnStride;
  static constexpr int64_t kPartBlocks = 9;
  static constexpr int64_t kPrefetchBytes = 8192;

  struct Operands {
    const uint8_t* rows;
    int64_t n;  // rows, 1 to kMaxRows
    const uint8_t* columns;
    int64_t blocks;
    // Rows of the band that tiles are configured for, 0 = none; kept for the next chunk. Null:
    // Multiply() configures tiles and releases them again. Configuring clears all tiles and takes
    // 0.15 to 0.23 us (Sapphire Rapids).
    int64_t* configured = nullptr;
    // Where the outputs of row 0 begin, two lines of 64 bytes, and the bytes from a row to the next;
    // null: they need not be fetched.
    const uint8_t* outputs = nullptr;
    int64_t output_stride = 0;
  };

  // Calls start(begin, rows) before the products of the band that begins at row `begin`, which sets
  // its sums, and finish(begin, rows) once they are complete.
  template <class Start, class Finish>
  static void Multiply(const Operands& o, const Start& start, const Finish& finish) {
    const int64_t parts = o.n <= kBandRows ? 1 : (o.blocks + kPartBlocks - 1) / kPartBlocks;
    WaitingSums waiting[kMaxRows / kBandRows];
    const int64_t bands = (o.n + kBandRows - 1) / kBandRows;
    int64_t here = 0;
    int64_t* const configured = o.configured == nullptr ? &here : o.configured;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = part * o.blocks / parts, last = (part + 1) * o.blocks / parts;
      for (int64_t i = 0; i < bands; ++i) {
        // Alternates the direction, so that a smaller last band does not need two configurations
        // per part.
        const int64_t at = part % 2 == 0 ? i : bands - 1 - i, begin = at * kBandRows;
        const int64_t rows = Band::RowsOfBand(o.n, begin);
        if (rows != *configured) Band::Configure(rows);
        *configured = rows;
        WaitingSums& sums = waiting[at];
        const uint8_t* const band = o.rows + begin * o.blocks * kRowBytes;
        part == 0 ? start(begin, rows) : ForEachSum<Resume>(rows, sums);
        Products products = {band + first * rows * kRowBytes, rows * kRowBytes,
                             o.columns + first * kBlockBytes, last - first};
        if (part + 1 == parts && o.outputs != nullptr) {
          products.outputs = {o.outputs + begin * o.output_stride, o.output_stride, rows};
        }
        rows > Band::kTileRows ? products.template Add<true>(i == 0)
                               : products.template Add<false>(i == 0);
        part + 1 == parts ? finish(begin, rows) : ForEachSum<PutAside>(rows, sums);
      }
    }
    if (o.configured == nullptr) Tiles::Release();
  }

  // Sets sums to 0: for a `start` without earlier sums.
  static void Clear(int64_t rows) {
    rows > Band::kTileRows ? Band::template Clear<true>() : Band::template Clear<false>();
  }

 private:
  struct alignas(64) WaitingSums {
    uint8_t tiles[4][Band::kTileRows * kRowBytes];
  };

  template <int kTile>
  struct Resume {
    static void Run(WaitingSums& sums) {
      Tiles::template Load<kTile>(sums.tiles[kTile], kRowBytes);
    }
  };
  template <int kTile>
  struct PutAside {
    static void Run(WaitingSums& sums) {
      Tiles::template Store<kTile>(sums.tiles[kTile], kRowBytes);
    }
  };

  template <template <int> class Move>
  static void ForEachSum(int64_t rows, WaitingSums& sums) {
    Move<0>::Run(sums);
    Move<1>::Run(sums);
    if (rows <= Band::kTileRows) return;
    Move<2>::Run(sums);
    Move<3>::Run(sums);
  }

  // GCC drops calls of a function that only prefetches, unless it has to inline it.
  [[gnu::always_inline]] static void Prefetch(const uint8_t* from) {
    for (int64_t line = 0; line < kBlockBytes; line += 64) __builtin_prefetch(from + line);
  }

  // Outputs of a band that are not fetched yet. Without it, the stores at a band's end wait for
  // lines from beyond L2 one after the other, as long as the products took.
  struct Outputs {
    const uint8_t* next = nullptr;
    int64_t stride = 0;
    int64_t rows = 0;
    [[gnu::always_inline]] void Fetch(int64_t count) {
      for (; count > 0 && rows > 0; --count, --rows, next += stride) {
        __builtin_prefetch(next, 1);
        __builtin_prefetch(next + 64, 1);
      }
    }
  };

  // Multiplies the blocks of a band with those of the slice.
  struct Products {
    const uint8_t* rows;
    int64_t row_block_bytes;
    const uint8_t* columns;
    int64_t blocks;
    Outputs outputs = {};

    // `first_time`: no other band has read these columns.
    template <bool kTwo>
    void Add(bool first_time) {
      first_time ? AddBlocks<kTwo, true>() : AddBlocks<kTwo, false>();
    }

    template <bool kTwo, bool kFirst>
    void AddBlocks() {
      const uint8_t *x = rows, *w = columns;
      const int64_t fetched = (outputs.rows + blocks - 1) / blocks;
      for (int64_t block = 0; block < blocks; ++block) {
        outputs.Fetch(fetched);
        if constexpr (kFirst) Prefetch(w + kPrefetchBytes);
        Band::template Add<kTwo>(x, kRowBytes, w, w + kRowBytes, kColumnStride);
        x += row_block_bytes;
        w += kBlockBytes;
      }
    }
  };
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_TILES_BANDED_PRODUCTS_H_
