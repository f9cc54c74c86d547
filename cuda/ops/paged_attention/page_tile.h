// File: cuda/ops/paged_attention/page_tile.h
// Tiles of kKeys keys and values of one KV head, from pages to shared memory in bf16, which
// holds every number of the cache types that it takes. Keys that no row of the block's tile sees
// are zeros, and their pages are not read. Pages are a multiple of kPiece keys.
//
//   const PageTile<BFloat16, 64> pages = {...};
//   pages.CopyKeys(tile, shared, threads);      // [head_dim, kKeyStride]
//   pages.CopyValues(tile, shared, threads);    // [kKeys, head_dim + kRowPadding]
//   WaitCopies<0>();
//   SyncBlock();
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGE_TILE_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_PAGE_TILE_H_

#include <cstdint>

#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/kv_write/kv_cache_types.h"

namespace pagemill::gpu {

template <typename C, int kKeys>
struct PageTile {
  static constexpr int kKeyStride = kKeys + kRowPadding;

  Rows<const C> cache;
  const int32_t* table;  // the request's
  int block_size, head_dim;
  int64_t kv_head, kv_heads;
  int low, high;  // keys that some row sees

  // `threads`, a multiple of kKeys / kPiece, copy together.
  PAGEMILL_DEVICE void CopyKeys(int tile, BFloat16* to, int threads) const {
    constexpr int kPieces = kKeys / kPiece;
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
    ForPieces(kKeys, head_dim / kPiece, threads, [&](int row, int piece) {
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
