// File: cuda/ops/attention/dot_tile.h
// Dot products of rows (heads of queries) with tiles of kTileKeys keys, by a block of kTileThreads
// threads: thread t has row t / 8 of kTileRows rows, and every eighth key from t % 8 on.
//
//   DotTile tile(key_size, kTileRows, DynamicShared<float>());
//   tile.LoadRows([&](int row, int d) { return Query(row, d); });
//   float dots[kTileKeys / 8];
//   tile.Multiply([&](int64_t key) { return Key(key); }, first, end, /*first_row=*/0, dots);
//
// Every thread of the block calls the same functions.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_DOT_TILE_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_DOT_TILE_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileRows = 32;
inline constexpr int kTileKeys = 32;
inline constexpr int kTileChunk = 64;  // elements of keys in shared memory together
inline constexpr int kThreadsOfRow = kTileThreads / kTileRows;
inline constexpr int kKeysOfThread = kTileKeys / kThreadsOfRow;

// Quads of a key in shared memory: odd, so that neighbouring keys are in different banks.
inline constexpr int kChunkQuads = kTileChunk / 4 + 1;

class DotTile {
  using Quad = Vector<float, 4>;

 public:
  PAGEMILL_DEVICE DotTile(int key_size, int rows, float* shared)
      : key_size_(key_size),
        rows_(rows),
        row_quads_((key_size + kTileChunk - 1) / kTileChunk * (kTileChunk / 4) + 1),
        queries_(reinterpret_cast<Quad*>(shared)),
        chunk_(queries_ + rows * row_quads_) {}

  // `query(row, d)` is element d of a row.
  template <typename Query>
  PAGEMILL_DEVICE void LoadRows(const Query& query) {
    const int width = (row_quads_ - 1) * 4;
    for (int i = static_cast<int>(ThreadIndex().x); i < rows_ * width; i += kTileThreads) {
      const int row = i / width, d = i % width;
      queries_[row * row_quads_ + d / 4].values[d % 4] = d < key_size_ ? query(row, d) : 0;
    }
  }

  // Of rows from `first_row` on with keys from `tile` on; those from `end` on count as 0.
  // `key_of(key)[d]` is element d of a key.
  template <typename KeyOf>
  PAGEMILL_DEVICE void Multiply(const KeyOf& key_of, int64_t tile, int64_t end, int first_row,
                                float (&dots)[kKeysOfThread]) {
    const int thread = static_cast<int>(ThreadIndex().x);
    const Quad* const query = queries_ + (first_row + thread / kThreadsOfRow) * row_quads_;
    const Quad* const keys = chunk_ + thread % kThreadsOfRow * kChunkQuads;
    PAGEMILL_UNROLL
    for (int i = 0; i < kKeysOfThread; ++i) dots[i] = 0;
    for (int begin = 0; begin < key_size_; begin += kTileChunk) {
      LoadChunk(key_of, tile, end, begin, key_size_);
      const int left = key_size_ - begin;
      const int quads = left < kTileChunk ? (left + 3) / 4 : kTileChunk / 4;
      for (int quad = 0; quad < quads; ++quad) {
        const Quad q = query[begin / 4 + quad];
        PAGEMILL_UNROLL
        for (int i = 0; i < kKeysOfThread; ++i) {
          const Quad k = keys[i * kThreadsOfRow * kChunkQuads + quad];
          for (int d = 0; d < 4; ++d) dots[i] += q.values[d] * k.values[d];
        }
      }
    }
  }

  // Puts elements from `begin` on of the vectors of a tile into chunk(): zeros for those from `end`
  // on, and beyond `size`.
  template <typename VectorOf>
  PAGEMILL_DEVICE void LoadChunk(const VectorOf& vector_of, int64_t tile, int64_t end, int begin,
                                 int size) {
    SyncBlock();  // the chunk before has been read
    for (int i = static_cast<int>(ThreadIndex().x); i < kTileKeys * kTileChunk;
         i += kTileThreads) {
      const int key = i / kTileChunk, d = i % kTileChunk;
      const bool exists = tile + key < end && begin + d < size;
      chunk_[key * kChunkQuads + d / 4].values[d % 4] =
          exists ? ToFloat(vector_of(tile + key)[begin + d]) : 0;
    }
    SyncBlock();
  }

  PAGEMILL_DEVICE const float* chunk() const { return chunk_->values; }
  // Shared memory behind that of the tile.
  PAGEMILL_DEVICE float* rest() const { return chunk_[kTileKeys * kChunkQuads].values; }

 private:
  const int key_size_, rows_, row_quads_;
  Quad* const queries_;
  Quad* const chunk_;
};

inline int64_t DotSharedBytes(int64_t rows, int64_t key_size) {
  const int64_t chunks = (key_size + kTileChunk - 1) / kTileChunk;
  const int64_t quads = rows * (chunks * (kTileChunk / 4) + 1) + kTileKeys * kChunkQuads;
  return quads * 4 * static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_DOT_TILE_H_
