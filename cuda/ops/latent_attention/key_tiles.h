// File: cuda/ops/latent_attention/key_tiles.h
// Tiles of a request's keys in shared memory, in bf16: one is read while the next is copied.
//
//   KeyTiles<Pages> tiles(pages, source, shared);   // KeyTiles<Pages>::Bytes(pages) of it
//   tiles.Copy(first);
//   for (int tile = first; tile < end; tile += kTileLatents) {
//     const BFloat16* keys = tiles.Await();         // [kTileLatents, width + kRowPadding]
//     if (tile + kTileLatents < end) tiles.Copy(tile + kTileLatents);
//     ...
//   }
//
// Keys that no row sees are zeros, and their pages are not read. Every thread of the block calls
// the same functions.
#ifndef PAGEMILL_CUDA_OPS_LATENT_ATTENTION_KEY_TILES_H_
#define PAGEMILL_CUDA_OPS_LATENT_ATTENTION_KEY_TILES_H_

#include <cstddef>
#include <cstdint>

#include "cc/ops/latent_write/latent_f8_row.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/latent_write/latent_pages.h"

namespace pagemill::gpu {

inline constexpr int kTileLatents = 32;
inline constexpr int kLatentThreads = 128;  // of a block

// Where the keys of a request lie.
struct KeySource {
  const int32_t* table;
  int block_size;
  int high;   // behind the last key that some row sees
  int width;  // elements of a key

  PAGEMILL_DEVICE int Stride() const { return width + kRowPadding; }
};

template <typename Pages>
class KeyTiles;

// Two tiles in turn.
template <>
class KeyTiles<LatentPages<BFloat16>> {
 public:
  static int64_t Bytes(const LatentPages<BFloat16>& pages) {
    return 2 * kTileLatents * (pages.width + kRowPadding) * static_cast<int64_t>(sizeof(BFloat16));
  }

  PAGEMILL_DEVICE KeyTiles(const LatentPages<BFloat16>& pages, const KeySource& source,
                           std::byte* shared)
      : pages_(pages), source_(source), tiles_(reinterpret_cast<BFloat16*>(shared)) {}

  PAGEMILL_DEVICE void Copy(int tile) {
    copied_ ^= 1;
    BFloat16* const to = Tile();
    ForPieces(kTileLatents, source_.width / kPiece, kLatentThreads, [&](int key, int piece) {
      const int at = tile + key;
      const BFloat16* from = nullptr;
      if (at < source_.high) {
        from = pages_.Row(source_.table[at / source_.block_size], at % source_.block_size) +
               piece * kPiece;
      }
      CopyPiece(from, to + key * source_.Stride() + piece * kPiece);
    });
    CommitCopies();
  }

  PAGEMILL_DEVICE const BFloat16* Await() {
    WaitCopies<0>();
    SyncBlock();  // the keys are there; those before have been read
    return Tile();
  }

 private:
  PAGEMILL_DEVICE BFloat16* Tile() const {
    return tiles_ + copied_ * kTileLatents * source_.Stride();
  }

  const LatentPages<BFloat16> pages_;
  const KeySource source_;
  BFloat16* const tiles_;
  int copied_ = 0;
};

// Rows as they are stored, and the tile that they are decoded to, which is exact.
template <>
class KeyTiles<LatentF8Pages> {
 public:
  static int64_t Bytes(const LatentF8Pages& pages) {
    const int64_t width = pages.parts.codes + pages.parts.rest;
    return kTileLatents *
           (pages.parts.bytes() + (width + kRowPadding) * static_cast<int64_t>(sizeof(BFloat16)));
  }

  PAGEMILL_DEVICE KeyTiles(const LatentF8Pages& pages, const KeySource& source, std::byte* shared)
      : pages_(pages),
        source_(source),
        stored_(reinterpret_cast<uint8_t*>(shared)),
        tile_(reinterpret_cast<BFloat16*>(shared + kTileLatents * pages.parts.bytes())) {}

  PAGEMILL_DEVICE void Copy(int tile) {
    const int row_bytes = static_cast<int>(pages_.parts.bytes());
    ForPieces(kTileLatents, row_bytes / kBytes, kLatentThreads, [&](int key, int piece) {
      const int at = tile + key;
      uint8_t* const to = stored_ + key * row_bytes + piece * kBytes;
      if (at < source_.high) {
        const LatentF8Bytes row =
            pages_.Row(source_.table[at / source_.block_size], at % source_.block_size);
        CopyAsync16(to, row.bytes + piece * kBytes);
      } else {
        *reinterpret_cast<Vector<uint32_t, 4>*>(to) = {};
      }
    });
    CommitCopies();
  }

  PAGEMILL_DEVICE const BFloat16* Await() {
    WaitCopies<0>();
    SyncBlock();  // the rows are there; the keys before have been read
    ForPieces(kTileLatents, source_.width / kPiece, kLatentThreads, [&](int key, int piece) {
      BFloat16* const to = tile_ + key * source_.Stride() + piece * kPiece;
      *reinterpret_cast<Vector<uint32_t, 4>*>(to) = Decoded(key, piece * kPiece);
    });
    SyncBlock();  // the keys are there; the rows have been read
    return tile_;
  }

 private:
  static constexpr int kBytes = 16;  // that are copied together
  static_assert(kPiece == 8 && ops::kLatentGroup % kPiece == 0);

  // The elements from d on of a key, in bf16.
  PAGEMILL_DEVICE Vector<uint32_t, 4> Decoded(int key, int64_t d) const {
    const LatentF8Bytes row = {stored_ + key * pages_.parts.bytes(), pages_.parts};
    if (d >= pages_.parts.codes) {
      return *reinterpret_cast<const Vector<uint32_t, 4>*>(row.rest() + d - pages_.parts.codes);
    }
    const float scale = BitsToFloat(row.scales()[d / ops::kLatentGroup]);
    const auto codes = *reinterpret_cast<const Vector<uint16_t, 4>*>(row.bytes + d);
    Vector<uint32_t, 4> pairs;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const FloatPair pair = Float8PairToFloats(codes.values[i]);
      pairs.values[i] = PackBFloat16(pair.low * scale, pair.high * scale);
    }
    return pairs;
  }

  const LatentF8Pages pages_;
  const KeySource source_;
  uint8_t* const stored_;  // [kTileLatents, parts.bytes()]
  BFloat16* const tile_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_ATTENTION_KEY_TILES_H_
