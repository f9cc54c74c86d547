// File: cuda/ops/paged_attention/page_tile.h
// Tiles of kTileKeys keys and values of one KV head, from pages to shared memory in bf16, which
// holds every number of the cache types that it takes. Keys that no row of the block's tile sees
// are zeros, and their pages are not read.
//
//   const PageTile<BFloat16> pages = {...};
//   pages.CopyKeys(tile, shared, threads);      // [head_dim, kKeyStride]
//   pages.CopyValues(tile, shared, threads);    // [kTileKeys, head_dim + kRowPadding]
//   WaitCopies<0>();
//   SyncBlock();
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGE_TILE_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGE_TILE_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/kv_write/kv_cache_types.h"

namespace pagemill::gpu {

inline constexpr int kTileKeys = 64;

// Rows of shared memory begin 4 banks after the one before, so that eight are read at once.
inline constexpr int kRowPadding = 8;
inline constexpr int kKeyStride = kTileKeys + kRowPadding;

// Elements that are copied together: of one page, whose size is a multiple.
inline constexpr int kPiece = 8;

// A piece as bf16; zeros if `from` is null.
template <typename C>
PAGEMILL_DEVICE void CopyPiece(const C* from, BFloat16* to) {
  using Piece = Vector<BFloat16, kPiece>;
  if (from == nullptr) {
    *reinterpret_cast<Piece*>(to) = {};
  } else if constexpr (std::is_same_v<C, BFloat16>) {
    CopyAsync16(to, from);
  } else {
    const auto read = *reinterpret_cast<const Vector<C, kPiece>*>(from);
    Piece piece;
    PAGEMILL_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      piece.values[i] = FromFloat<BFloat16>(ToFloat(read.values[i]));
    }
    *reinterpret_cast<Piece*>(to) = piece;
  }
}

// Calls body(row, piece) once for each piece of each row, divided among the block's `threads`
// threads. No division in the loop.
template <typename Body>
PAGEMILL_DEVICE void ForPieces(int rows, int pieces, int threads, const Body& body) {
  int row = static_cast<int>(ThreadIndex().x) / pieces;
  int piece = static_cast<int>(ThreadIndex().x) % pieces;
  while (row < rows) {
    body(row, piece);
    row += threads / pieces;
    piece += threads % pieces;
    if (piece < pieces) continue;
    piece -= pieces;
    ++row;
  }
}

template <typename C>
struct PageTile {
  Rows<const C> cache;
  const int32_t* table;  // the request's
  int block_size, head_dim;
  int64_t kv_head, kv_heads;
  int low, high;  // keys that some row sees

  // `threads`, a multiple of kTileKeys / kPiece, copy together.
  PAGEMILL_DEVICE void CopyKeys(int tile, BFloat16* to, int threads) const {
    constexpr int kPieces = kTileKeys / kPiece;
    const int thread = static_cast<int>(ThreadIndex().x), column = thread % kPieces * kPiece;
    const int key = tile + column;
    const bool seen = key < high && key + kPiece > low;
    const C* const from =
        seen ? cache[table[key / block_size]] + kv_head * head_dim * block_size + key % block_size
             : nullptr;
    for (int d = thread / kPieces; d < head_dim; d += threads / kPieces) {
      CopyPiece(seen ? from + static_cast<int64_t>(d) * block_size : nullptr,
                to + d * kKeyStride + column);
    }
    CommitCopies();
  }

  PAGEMILL_DEVICE void CopyValues(int tile, BFloat16* to, int threads) const {
    ForPieces(kTileKeys, head_dim / kPiece, threads, [&](int row, int piece) {
      const int key = tile + row;
      const C* from = nullptr;
      if (key >= low && key < high) {
        const int64_t of_block = (kv_heads + kv_head) * block_size + key % block_size;
        from = cache[table[key / block_size]] + of_block * head_dim + piece * kPiece;
      }
      CopyPiece(from, to + row * (head_dim + kRowPadding) + piece * kPiece);
    });
    CommitCopies();
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGE_TILE_H_
