// File: cuda/ops/attention/attend_tile.h
// Attention of a tile of rows (heads of queries) over tiles of keys in order, with the softmax of
// the keys so far, by a block of kAttendThreads threads. A row's bits depend on what it sees alone,
// if the first key of its source always is the same one.
//
//   AttendTile<float, 1> tile(key_size, value_size);
//   tile.LoadRows([&](int row, int d) { return Query(row, d); });
//   tile.Attend(keys, first, end);             // keys [first, end) of a source, below
//   tile.Store([&](int row, int d, float value) { ... });
//
// A source of keys, of elements of type C, has the members
//
//   const C* Key(int64_t key), Value(int64_t key)
//   float Score(int row, int64_t key, float dot)    -INFINITY if the row does not see the key
//   bool AllSee(int64_t first, int64_t end)         every row of the tile sees these keys
//
// kChunks: value_size / kAttendChunk, rounded up, at least.
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kAttendThreads = 256;
inline constexpr int kAttendRows = 32;
inline constexpr int kAttendKeys = 32;   // of a tile, which begins at a multiple of it
inline constexpr int kAttendChunk = 64;  // elements of keys or values in shared memory together

// Quads of rows in shared memory: odd, so that neighbouring rows are in different banks.
inline constexpr int kAttendChunkQuads = kAttendChunk / 4 + 1;
inline constexpr int kAttendWeightQuads = kAttendKeys / 4 + 1;

template <typename C, int kChunks>
class AttendTile {
  using Quad = Vector<float, 4>;

 public:
  PAGEMILL_DEVICE AttendTile(int key_size, int value_size)
      : key_size_(key_size),
        value_size_(value_size),
        row_quads_((key_size + kAttendChunk - 1) / kAttendChunk * (kAttendChunk / 4) + 1),
        queries_(DynamicShared<Quad>()),
        chunk_(queries_ + kAttendRows * row_quads_),
        weights_(chunk_ + kAttendKeys * kAttendChunkQuads),
        factors_(reinterpret_cast<float*>(weights_ + kAttendRows * kAttendWeightQuads)) {}

  template <typename Query>
  PAGEMILL_DEVICE void LoadRows(const Query& query) {
    const int width = (row_quads_ - 1) * 4;
    for (int i = Thread(); i < kAttendRows * width; i += kAttendThreads) {
      const int row = i / width, d = i % width;
      queries_[row * row_quads_ + d / 4].values[d % 4] = d < key_size_ ? query(row, d) : 0;
    }
  }

  template <typename Source>
  PAGEMILL_DEVICE void Attend(const Source& source, int64_t first, int64_t end) {
    for (int64_t tile = first / kAttendKeys * kAttendKeys; tile < end; tile += kAttendKeys) {
      float scores[kKeysOfThread] = {};
      for (int begin = 0; begin < key_size_; begin += kAttendChunk) {
        LoadChunk([&](int64_t key) { return source.Key(key); }, tile, end, begin, key_size_);
        AddDots(begin, scores);
      }
      Weigh(source, tile, end, scores);
      const bool all = tile + kAttendKeys <= end && source.AllSee(tile, tile + kAttendKeys);
      PAGEMILL_UNROLL
      for (int j = 0; j < kChunks; ++j) {
        if (j * kAttendChunk >= value_size_) break;
        LoadChunk([&](int64_t key) { return source.Value(key); }, tile, end, j * kAttendChunk,
                  value_size_);
        all ? AddValues<true>(j) : AddValues<false>(j);
      }
    }
  }

  // The weighted means of values.
  template <typename Write>
  PAGEMILL_DEVICE void Store(const Write& write) {
    SyncBlock();
    if (Thread() % kThreadsOfRow == 0) factors_[Thread() / kThreadsOfRow] = 1 / sum_;
    SyncBlock();
    PAGEMILL_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      const int d = j * kAttendChunk + Thread() % kAttendChunk;
      if (d >= value_size_) break;
      for (int i = 0; i < kRowsOfThread; ++i) {
        write(FirstRow() + i, d, sums_[i][j] * factors_[FirstRow() + i]);
      }
    }
  }

 private:
  // A thread has scores of one row, and sums of one element of several rows.
  static constexpr int kThreadsOfRow = kAttendThreads / kAttendRows;
  static constexpr int kKeysOfThread = kAttendKeys / kThreadsOfRow;
  static constexpr int kRowsOfThread = kAttendRows / (kAttendThreads / kAttendChunk);

  PAGEMILL_DEVICE static int Thread() { return static_cast<int>(ThreadIndex().x); }
  PAGEMILL_DEVICE static int FirstRow() { return Thread() / kAttendChunk * kRowsOfThread; }

  // Elements from `begin` on of the keys or values of a tile; zeros beyond `end` and `size`.
  template <typename RowOf>
  PAGEMILL_DEVICE void LoadChunk(const RowOf& row_of, int64_t tile, int64_t end, int begin,
                                 int size) {
    SyncBlock();  // the chunk before has been read
    for (int i = Thread(); i < kAttendKeys * kAttendChunk; i += kAttendThreads) {
      const int key = i / kAttendChunk, d = i % kAttendChunk;
      const bool exists = tile + key < end && begin + d < size;
      chunk_[key * kAttendChunkQuads + d / 4].values[d % 4] =
          exists ? ToFloat(row_of(tile + key)[begin + d]) : 0;
    }
    SyncBlock();
  }

  PAGEMILL_DEVICE void AddDots(int begin, float (&scores)[kKeysOfThread]) const {
    const Quad* const query = queries_ + Thread() / kThreadsOfRow * row_quads_ + begin / 4;
    const Quad* const keys = chunk_ + Thread() % kThreadsOfRow * kAttendChunkQuads;
    const int left = key_size_ - begin;
    const int quads = left < kAttendChunk ? (left + 3) / 4 : kAttendChunk / 4;
    for (int quad = 0; quad < quads; ++quad) {
      const Quad q = query[quad];
      PAGEMILL_UNROLL
      for (int i = 0; i < kKeysOfThread; ++i) {
        const Quad k = keys[i * kThreadsOfRow * kAttendChunkQuads + quad];
        for (int d = 0; d < 4; ++d) scores[i] += q.values[d] * k.values[d];
      }
    }
  }

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
      weights_[row * kAttendWeightQuads + key / 4].values[key % 4] = weight;
      sum += weight;
    }
    sum_ = sum_ * kept + WarpReduce(sum, Sum{}, kThreadsOfRow);
    most_ = most;
    if (first == 0) factors_[row] = kept;
  }

  // Values that a row does not see may be NaN, unless all rows see them.
  template <bool kAllSeen>
  PAGEMILL_DEVICE void AddValues(int j) {
    if (j * kAttendChunk + Thread() % kAttendChunk >= value_size_) return;
    const float* const values = chunk_->values + Thread() % kAttendChunk;
    const int row = FirstRow();
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowsOfThread; ++i) sums_[i][j] *= factors_[row + i];
    for (int quad = 0; quad < kAttendKeys / 4; ++quad) {
      float value[4];
      PAGEMILL_UNROLL
      for (int k = 0; k < 4; ++k) value[k] = values[(quad * 4 + k) * kAttendChunkQuads * 4];
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsOfThread; ++i) {
        const Quad weights = weights_[(row + i) * kAttendWeightQuads + quad];
        PAGEMILL_UNROLL
        for (int k = 0; k < 4; ++k) {
          if (kAllSeen || weights.values[k] != 0) sums_[i][j] += weights.values[k] * value[k];
        }
      }
    }
  }

  const int key_size_, value_size_, row_quads_;
  Quad* const queries_;
  Quad* const chunk_;
  Quad* const weights_;
  float* const factors_;   // of rows: what remains of the sums so far
  float most_ = -INFINITY;  // of the thread's row
  float sum_ = 0;
  float sums_[kRowsOfThread][kChunks] = {};
};

// Dynamic shared memory of a block.
inline int64_t AttendSharedBytes(int64_t key_size) {
  const int64_t chunks = (key_size + kAttendChunk - 1) / kAttendChunk;
  const int64_t quads = kAttendRows * (chunks * (kAttendChunk / 4) + 1) +
                        kAttendKeys * kAttendChunkQuads + kAttendRows * kAttendWeightQuads;
  return (quads * 4 + kAttendRows) * static_cast<int64_t>(sizeof(float));
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_ATTEND_TILE_H_
