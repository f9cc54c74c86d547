// File: cuda/ops/attention/attend_tile.h
// Attention of a tile of rows (heads of queries) over tiles of keys in order, with the softmax of
// the keys so far, by a block of kTileThreads threads. A row's bits depend on what it sees alone:
// tiles of keys begin at multiples of kTileKeys.
//
//   AttendTile<1> tile(key_size, value_size);
//   tile.LoadRows([&](int row, int d) { return Query(row, d); });
//   tile.AddSink(sink);                        // if the head has one
//   tile.Attend(keys, first, end);             // keys [first, end) of a source, below
//   tile.Store([&](int row, int d, float value) { ... });
//
// A source of keys has the members
//
//   auto Key(int64_t key), Value(int64_t key)       whose element d is [d]
//   float Score(int row, int64_t key, float dot)    -INFINITY if the row does not see the key
//   bool AllSee(int64_t first, int64_t end)         every row of the tile sees these keys
//
// kChunks: value_size / kTileChunk, rounded up, at least.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/dot_tile.h"

namespace pagemill::gpu {

inline constexpr int kWeightQuads = kTileKeys / 4 + 1;  // of a row, in shared memory

template <int kChunks>
class AttendTile {
  using Quad = Vector<float, 4>;

 public:
  PAGEMILL_DEVICE AttendTile(int key_size, int value_size)
      : value_size_(value_size),
        dots_(key_size, kTileRows, DynamicShared<float>()),
        weights_(reinterpret_cast<Quad*>(dots_.rest())),
        factors_(weights_[kTileRows * kWeightQuads].values) {}

  template <typename Query>
  PAGEMILL_DEVICE void LoadRows(const Query& query) {
    dots_.LoadRows(query);
  }

  // Before any key: a score of every row that has a weight, no value.
  PAGEMILL_DEVICE void AddSink(float score) {
    most_ = score;
    sum_ = 1;
  }

  template <typename Source>
  PAGEMILL_DEVICE void Attend(const Source& source, int64_t first, int64_t end) {
    for (int64_t tile = first / kTileKeys * kTileKeys; tile < end; tile += kTileKeys) {
      float scores[kKeysOfThread];
      dots_.Multiply([&](int64_t key) { return source.Key(key); }, tile, end, 0, scores);
      Weigh(source, tile, end, scores);
      const int64_t left = end - tile;
      const int quads = static_cast<int>(left < kTileKeys ? (left + 3) / 4 : kTileKeys / 4);
      const bool all = left >= kTileKeys && source.AllSee(tile, tile + kTileKeys);
      PAGEMILL_UNROLL
      for (int j = 0; j < kChunks; ++j) {
        if (j * kTileChunk >= value_size_) break;
        dots_.LoadChunk([&](int64_t key) { return source.Value(key); }, tile, end, j * kTileChunk,
                        value_size_);
        all ? AddValues<true>(j, kTileKeys / 4) : AddValues<false>(j, quads);
      }
    }
  }

  // The weighted means of values.
  template <typename Write>
  PAGEMILL_DEVICE void Store(const Write& write) {
    SyncBlock();  // the factors of the last tile have been read
    if (Thread() % kThreadsOfRow == 0) factors_[Thread() / kThreadsOfRow] = 1 / sum_;
    SyncBlock();
    PAGEMILL_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      const int d = j * kTileChunk + Thread() % kTileChunk;
      if (d >= value_size_) break;
      for (int i = 0; i < kRowsOfThread; ++i) {
        write(FirstRow() + i, d, sums_[i][j] * factors_[FirstRow() + i]);
      }
    }
  }

 private:
  // A thread sums one element of several rows.
  static constexpr int kRowsOfThread = kTileRows / (kTileThreads / kTileChunk);

  PAGEMILL_DEVICE static int Thread() { return static_cast<int>(ThreadIndex().x); }
  PAGEMILL_DEVICE static int FirstRow() { return Thread() / kTileChunk * kRowsOfThread; }

  // Makes weights of scores, and adds them to the row's sum.
  template <typename Source>
  PAGEMILL_DEVICE void Weigh(const Source& source, int64_t tile, int64_t end,
                             float (&scores)[kKeysOfThread]) {
    const int row = Thread() / kThreadsOfRow, first = Thread() % kThreadsOfRow;
    float most = most_;
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int64_t key = tile + first + i * kThreadsOfRow;
      scores[i] = key < end ? source.Score(row, key, scores[i]) : -INFINITY;
      most = fmaxf(most, scores[i]);
    }
    most = WarpReduce(most, Max{}, kThreadsOfRow);
    const float kept = most_ == most ? 1 : Exp(most_ - most);
    float sum = 0;
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int key = first + i * kThreadsOfRow;
      const float weight = scores[i] == -INFINITY ? 0 : Exp(scores[i] - most);
      weights_[row * kWeightQuads + key / 4].values[key % 4] = weight;
      sum += weight;
    }
    sum_ = sum_ * kept + WarpReduce(sum, Sum{}, kThreadsOfRow);
    most_ = most;
    if (first == 0) factors_[row] = kept;
  }

  // Values that a row does not see may be NaN, unless all rows see them. `quads` of keys have been
  // loaded: a constant where all see them, so that the loop is unrolled. The other one is not, for
  // its conditions would be most of what a compiler has to do for a kernel.
  template <bool kAllSeen>
  PAGEMILL_DEVICE void AddValues(int j, int quads) {
    if (j * kTileChunk + Thread() % kTileChunk >= value_size_) return;
    const float* const values = dots_.chunk() + Thread() % kTileChunk;
    const int row = FirstRow();
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowsOfThread; ++i) sums_[i][j] *= factors_[row + i];
    for (int quad = 0; quad < quads; ++quad) {
      float value[4];
      PAGEMILL_UNROLL
      for (int k = 0; k < 4; ++k) value[k] = values[(quad * 4 + k) * kChunkQuads * 4];
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsOfThread; ++i) {
        const Quad weights = weights_[(row + i) * kWeightQuads + quad];
        PAGEMILL_UNROLL
        for (int k = 0; k < 4; ++k) {
          if (kAllSeen || weights.values[k] != 0) sums_[i][j] += weights.values[k] * value[k];
        }
      }
    }
  }

  const int value_size_;
  DotTile dots_;
  Quad* const weights_;
  float* const factors_;    // of rows: what remains of the sums so far
  float most_ = -INFINITY;  // of the thread's row
  float sum_ = 0;
  float sums_[kRowsOfThread][kChunks] = {};
};

// Dynamic shared memory of a block.
inline int64_t AttendSharedBytes(int64_t key_size) {
  return DotSharedBytes(kTileRows, key_size) +
         (kTileRows * kWeightQuads * 4 + kTileRows) * static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_
