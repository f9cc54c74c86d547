// File: cuda/ops/paged_attention/attend_matrix_item.h
// A tile of rows and its keys, by a block, on matrix cores of GPUs with 64 lanes (Mma16x16x32):
// what the kernels of attention_items.h compute for matrix_cores.cc.
//
//   using Item = AttendMatrixItem<BFloat16, /*kChunks=*/8, /*kMany=*/true>;  // of Item::kThreads
//   Item(call, cache, item, kv_head).Run(states);
//
// kChunks: of 16 elements of a head, at most. kMany: tiles of kFewRows rows, not of kWarpRows.
//
// A warp has 16 rows and reads keys and values for itself, without shared memory. They are the left
// factors of products whose right factors have a row of the tile in each column. The instruction's
// order of K does not matter as long as both factors have the same, nor which key is which row of a
// factor: so a lane reads squares of 8 x 8 elements as pages have them, and transposes them in its
// registers, and its scores are in the order in which the product with values needs them. With
// g = Lane() % 16 and t = Lane() / 16, lanes of one g have row g of the warp, and of it
//   query_[c], pair i  elements 32 * c + 8 * i + t and 4 more
//   scores[n][i]       of key 32 * t + 8 * i + n of a tile of kMatrixTileKeys
//   sums_[m][i]        of element kChunks * (4 * t + i) + m
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/attention/weighted_values.h"
#include "cuda/ops/kv_write/kv_cache_types.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_rows.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/split_state.h"

namespace pagemill::gpu {

inline constexpr int kMatrixTileKeys = 128;

template <typename C, int kChunks, bool kMany>
class AttendMatrixItem {
 public:
  using Cache = C;
  static constexpr bool kIsOfMany = kMany;
  static constexpr int kThreads = 64 * (kMany ? kFewRows / kWarpRows : 1);
  // At least: two wavefronts of a SIMD unit, for whose registers heads of more than 64 elements are
  // too large.
  static constexpr int kBlocks = (kChunks <= 4 ? 512 : 256) / kThreads;

  static int64_t SharedBytes(int64_t /*head_dim*/) {
    return int64_t{kChunks} * 4 * kThreads * static_cast<int64_t>(sizeof(float));
  }

  PAGEMILL_DEVICE AttendMatrixItem(const AttentionCall& call, Rows<const C> cache,
                                   const AttentionItem& item, int kv_head)
      : call_(call),
        item_(item),
        cache_(cache),
        table_(call.batch.data + item.request * call.batch.table_stride),
        head_dim_(static_cast<int>(call.params.head_dim)),
        block_size_(static_cast<int>(call.params.block_size)),
        kv_head_(kv_head),
        merged_(DynamicShared<float>()) {
    const RequestRows rows(call.params, call.batch, item.request, kv_head);
    const int first = item.first_row + Warp() * kWarpRows, left = rows.NumRows() - first;
    row_ = rows.Row(first + Lane() % 16);
    total_ = row_.exists ? StateBefore(call.params, row_.head) : SoftmaxState{0, 1};
    low_ = rows.Row(first).low;
    high_ = left > 0 ? rows.Row(first + (left < kWarpRows ? left : kWarpRows) - 1).high : 0;
  }

  PAGEMILL_DEVICE void Run(const SplitStates& states) {
    const int first = item_.first_split * kSplitKeys, end_split = item_.end_split * kSplitKeys;
    const int end = end_split < high_ ? end_split : high_;
    LoadQuery();
    for (int tile = first < low_ ? low_ / kMatrixTileKeys * kMatrixTileKeys : first; tile < end;) {
      float scores[kPiece][4] = {};
      MultiplyKeys(tile, scores);
      uint32_t weights[4][kPiece / 2];
      Weigh(tile, scores, weights);
      if (AllSee(tile)) {
        AddValues<true>(tile, weights);
      } else {
        AddValues<false>(tile, weights);
      }
      tile += kMatrixTileKeys;
      if (tile % kSplitKeys == 0 || tile >= end) EndSplit(states);
    }
    if (item_.state < 0) StoreMeans();
  }

 private:
  static constexpr int kSteps = kChunks / 2;  // of 32 elements of a head

  template <typename Combine>
  PAGEMILL_DEVICE static float ReduceRow(float value, Combine combine) {
    value = combine(value, ShuffleXor(AllLanes(), value, 16));
    return combine(value, ShuffleXor(AllLanes(), value, 32));
  }

  PAGEMILL_DEVICE static uint32_t PairInBf16(C low, C high) {
    if constexpr (std::is_same_v<C, BFloat16>) {
      return PairOf(low, high);
    } else {
      return PackBFloat16(ToFloat(low), ToFloat(high));
    }
  }

  // The lane's part of a left factor: column `i` of eight rows of memory.
  template <int kWidth>
  PAGEMILL_DEVICE static void TakeColumn(const Vector<C, kWidth> (&rows)[kPiece], int i,
                                         uint32_t (&pairs)[kPiece / 2]) {
    PAGEMILL_UNROLL
    for (int r = 0; r < kPiece; r += 2) {
      pairs[r / 2] = PairInBf16(rows[r].values[i], rows[r + 1].values[i]);
    }
  }

  PAGEMILL_DEVICE bool IsSeen(int key) const { return key >= low_ && key < high_; }

  // `key`, a multiple of kPiece, if the warp sees one of the kPiece keys from it on, and else the
  // first such key: loads are never conditional, and what they bring of other keys is not used.
  PAGEMILL_DEVICE int LoadedKey(int key) const {
    return key < high_ && key + kPiece > low_ ? key : low_ / kPiece * kPiece;
  }
  PAGEMILL_DEVICE const C* BlockOf(int key) const { return cache_[table_[key / block_size_]]; }

  // The first of kChunks elements of the head with sums_[m][i].
  PAGEMILL_DEVICE int FirstElement(int i) const { return kChunks * (Lane() / 16 * 4 + i); }

  PAGEMILL_DEVICE void LoadQuery() {
    if (call_.q.type == DType::kBF16) return LoadQueryOf<BFloat16>();
    if (call_.q.type == DType::kF16) return LoadQueryOf<Half>();
    LoadQueryOf<float>();
  }

  // Elements behind the head's last are zeros, as are those of keys.
  template <typename T>
  PAGEMILL_DEVICE void LoadQueryOf() {
    const T* const from = call_.q.template At<T>(row_.token, row_.head * head_dim_ + Lane() / 16);
    PAGEMILL_UNROLL
    for (int c = 0; c < kSteps; ++c) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const bool exists = row_.exists && 32 * c + 8 * i < head_dim_;
        const int d = exists ? 32 * c + 8 * i : 0;
        const uint32_t pair = PackBFloat16(ToFloat(from[d]), ToFloat(from[d + 4]));
        query_[c][i] = exists ? pair : 0;
      }
    }
  }

  // A lane has keys 8 * g to 8 * g + 7 of the tile as rows of its factors.
  PAGEMILL_DEVICE void MultiplyKeys(int tile, float (&scores)[kPiece][4]) const {
    const int key = LoadedKey(tile + Lane() % 16 * kPiece);
    const C* const from = BlockOf(key) + (kv_head_ * head_dim_ + Lane() / 16) * block_size_ +
                          key % block_size_;
    PAGEMILL_UNROLL
    for (int c = 0; c < kSteps; ++c) {
      if (c * 32 >= head_dim_) break;
      Vector<C, kPiece> rows[kPiece];
      PAGEMILL_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const int d = 32 * c + 4 * j;
        const bool exists = d < head_dim_;
        const C* const piece = from + (exists ? d : 0) * block_size_;
        rows[j] = *reinterpret_cast<const Vector<C, kPiece>*>(piece);
        if (!exists) rows[j] = {};
      }
      PAGEMILL_UNROLL
      for (int n = 0; n < kPiece; ++n) {
        uint32_t keys[kPiece / 2];
        TakeColumn(rows, n, keys);
        Mma16x16x32(scores[n], keys, query_[c]);
      }
    }
  }

  // Makes weights of scores, rounded to bf16 in pairs, with a maximum that is the split's so far.
  PAGEMILL_DEVICE void Weigh(int tile, float (&scores)[kPiece][4],
                             uint32_t (&weights)[4][kPiece / 2]) {
    float most = split_.most;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      PAGEMILL_UNROLL
      for (int n = 0; n < kPiece; ++n) {
        const int key = tile + Lane() / 16 * 32 + 8 * i + n;
        const bool seen = key >= row_.low && key < row_.high;
        scores[n][i] = seen ? Score(call_.params, scores[n][i], row_.head, row_.growth,
                                    key - row_.position)
                            : -INFINITY;
        most = fmaxf(most, scores[n][i]);
      }
    }
    most = ReduceRow(most, Max{});
    const float kept = split_.most == most ? 1 : Exp(split_.most - most);
    float sum = 0;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      PAGEMILL_UNROLL
      for (int n = 0; n < kPiece; n += 2) {
        BFloat16 pair[2];
        PAGEMILL_UNROLL
        for (int k = 0; k < 2; ++k) {
          const float score = scores[n + k][i];
          pair[k] = FromFloat<BFloat16>(score == -INFINITY ? 0 : Exp(score - most));
          sum += ToFloat(pair[k]);
        }
        weights[i][n / 2] = PairOf(pair[0], pair[1]);
      }
    }
    split_ = {most, fmaf(split_.sum, kept, sum)};  // the sum is this lane's
    PAGEMILL_UNROLL
    for (auto& sums : sums_) {
      PAGEMILL_UNROLL
      for (float& value : sums) value *= kept;
    }
  }

  // True if every row of the warp sees the whole tile.
  PAGEMILL_DEVICE bool AllSee(int tile) const {
    const bool all =
        !row_.exists || (tile >= row_.low && tile + kMatrixTileKeys <= row_.high);
    return Ballot(AllLanes(), !all) == 0;
  }

  // A lane has elements kChunks * g to kChunks * (g + 1) - 1 of values as rows of its factors; any
  // of them if these do not exist.
  template <bool kAllSeen>
  PAGEMILL_DEVICE void AddValues(int tile, const uint32_t (&weights)[4][kPiece / 2]) {
    const int first = Lane() % 16 * kChunks < head_dim_ ? Lane() % 16 * kChunks : 0;
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int key = tile + Lane() / 16 * 32 + 8 * i, loaded = kAllSeen ? key : LoadedKey(key);
      const int row = (static_cast<int>(call_.params.kv_heads) + kv_head_) * block_size_ +
                      loaded % block_size_;
      const C* const from = BlockOf(loaded) + row * head_dim_ + first;
      Vector<C, kChunks> rows[kPiece];
      PAGEMILL_UNROLL
      for (int r = 0; r < kPiece; ++r) {
        rows[r] = *reinterpret_cast<const Vector<C, kChunks>*>(from + r * head_dim_);
        if (!kAllSeen && !IsSeen(key + r)) rows[r] = {};
      }
      PAGEMILL_UNROLL
      for (int m = 0; m < kChunks; ++m) {
        uint32_t values[kPiece / 2];
        TakeColumn(rows, m, values);
        AddProduct<kAllSeen>(values, weights[i], sums_[m]);
      }
    }
  }

  // Values that are not finite make sums NaN of the rows that see them alone: the instruction would
  // multiply them with the other rows' zeros.
  template <bool kAllSeen>
  PAGEMILL_DEVICE static void AddProduct(const uint32_t (&values)[4], const uint32_t (&weights)[4],
                                         float (&sums)[4]) {
    if constexpr (kAllSeen) {
      Mma16x16x32(sums, values, weights);
    } else {
      constexpr uint32_t kOnes = 0x3f803f80u;
      uint32_t finite[4], bad[4];
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        finite[i] = values[i] & ~NotFinite(values[i]);
        bad[i] = NotFinite(values[i]) & kOnes;
      }
      Mma16x16x32(sums, finite, weights);
      float seen[4] = {};
      Mma16x16x32(seen, bad, weights);
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) sums[i] = seen[i] > 0 ? NAN : sums[i];
    }
  }

  // Merges the split into the total, or stores its state, and starts anew.
  PAGEMILL_DEVICE void EndSplit(const SplitStates& states) {
    split_.sum = ReduceRow(split_.sum, Sum{});
    if (item_.state < 0) {
      MergeSplit(Merge(split_, &total_));
    } else if (row_.exists) {
      StoreState(states.Row(item_.state, kv_head_, Lane() % 16));
    }
    split_ = {-INFINITY, 0};
    has_total_ = true;
    PAGEMILL_UNROLL
    for (auto& sums : sums_) {
      PAGEMILL_UNROLL
      for (float& sum : sums) sum = 0;
    }
  }

  PAGEMILL_DEVICE void MergeSplit(const MergeFactors& factors) {
    PAGEMILL_UNROLL
    for (int m = 0; m < kChunks; ++m) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& total = MergedValue(m, i);
        total = Merged(has_total_ ? total : 0, sums_[m][i], factors);
      }
    }
  }

  PAGEMILL_DEVICE void StoreState(float* row) const {
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (FirstElement(i) >= head_dim_) break;
      auto* const to = reinterpret_cast<Vector<float, 2>*>(row + FirstElement(i));
      PAGEMILL_UNROLL
      for (int m = 0; m < kChunks; m += 2) to[m / 2] = {sums_[m][i], sums_[m + 1][i]};
    }
    if (Lane() / 16 != 0) return;
    *reinterpret_cast<Vector<float, 2>*>(row + head_dim_) = {split_.most, split_.sum};
  }

  PAGEMILL_DEVICE void StoreMeans() const {
    if (!row_.exists) return;
    for (int i = 0; i < 4; ++i) {
      if (FirstElement(i) >= head_dim_) break;
      for (int m = 0; m < kChunks; ++m) {
        call_.y.Store(row_.token, row_.head * head_dim_ + FirstElement(i) + m,
                      Mean(MergedValue(m, i), total_, call_.params));
      }
    }
  }

  // Each thread has its own, in its bank.
  PAGEMILL_DEVICE float& MergedValue(int m, int i) const {
    return merged_[(m * 4 + i) * kThreads + static_cast<int>(ThreadIndex().x)];
  }

  const AttentionCall& call_;
  const AttentionItem item_;
  const Rows<const C> cache_;
  const int32_t* const table_;
  const int head_dim_, block_size_, kv_head_;
  float* const merged_;  // sums of the splits before
  TileRow row_;
  int low_, high_;  // of the keys that the warp's rows see
  SoftmaxState split_ = {-INFINITY, 0};
  SoftmaxState total_;
  bool has_total_ = false;
  uint32_t query_[kSteps][4];
  float sums_[kChunks][4] = {};
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_
