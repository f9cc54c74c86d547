// File: cc/ops/linear/row_tiles.h
// Divides rows of x into register tiles of at most kMax rows. A tile is compiled for each number of
// rows:
//
//   ForEachRowTile<kTileN>(p.n, [&]<int kRows>(int64_t begin) { MultiplyTile<kRows>(p, begin); });
//
// Always inlined, so that files of different instruction sets share no copy.
#ifndef PAGEMILL_CC_OPS_LINEAR_ROW_TILES_H_
#define PAGEMILL_CC_OPS_LINEAR_ROW_TILES_H_

#include <cstdint>

namespace pagemill::ops::linear {

// Calls f<rows>(), 1 <= rows <= kMax.
template <int kMax, class F>
[[gnu::always_inline]] inline void WithRows(int64_t rows, const F& f) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return WithRows<kMax - 1>(rows, f);
  }
  f.template operator()<kMax>();
}

// Calls f<rows>(begin) for each tile of [0, n). Tiles have nearly equal numbers of rows, since
// small tiles are less efficient.
template <int kMax, class F>
[[gnu::always_inline]] inline void ForEachRowTile(int64_t n, const F& f) {
  const int64_t tiles = (n + kMax - 1) / kMax;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = t * n / tiles;
    WithRows<kMax>((t + 1) * n / tiles - begin,
                   [&]<int kRows>() { f.template operator()<kRows>(begin); });
  }
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ROW_TILES_H_
