// File: cuda/ops/paged_attention/attend_matrix_item.h
// A tile of rows and its keys, by a block, on matrix cores (gpu_matrix_cores.h): what kernels of
// attention_items.h compute for matrix_cores.cc.
//
//   using Item = AttendMatrixItem<BFloat16, /*kLanes=*/64, /*kChunks=*/8, /*kMany=*/true>;
//   Item(call, cache, item, kv_head).Run(states);
//
// A block has Item::kThreads. kLanes: of a warp. kChunks: of 16 elements of a head, at most. kMany:
// tiles of kFewRows rows, not of kWarpRows.
//
// A warp has 16 rows and reads keys and values for itself, not into shared memory. They are the left
// factors of products whose right factors have a row of the tile in each column. The instruction's
// order of K does not matter as long as both factors have the same, nor which key is which row of a
// factor: so a lane reads squares of elements as pages have them, of kLaneKeys keys, and transposes
// them in its registers, and its scores are in the order in which the product with values needs
// them. With g = Lane() % 16 and t = Lane() / 16, lanes of one g have row g of the warp, and of it
//   QueryAt(c), pair i  elements kColumns * c + 2 * kParts * i + t and kParts more
//   scores[n][i]        of key kLaneKeys * RowOfSum(i) + n of a tile
//   sums_[m][i]         of element kChunks * RowOfSum(i) + m
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_matrix_cores.h"
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

template <typename C, int kLanes, int kChunks, bool kMany>
class AttendMatrixItem {
 public:
  using Cache = C;
  static constexpr bool kIsOfMany = kMany;
  static constexpr int kThreads = kLanes * (kMany ? kFewRows / kWarpRows : 1);
  // At least: two wavefronts of a SIMD unit, for whose registers heads of more than 64 elements are
  // too large.
  static constexpr int kBlocks = (kChunks <= 4 ? 512 : 256) / kThreads;

  static int64_t SharedBytes(int64_t /*head_dim*/) {
    constexpr int64_t kSumBytes = int64_t{kChunks} * kSums * sizeof(float);
    constexpr int64_t kQueryBytes = kHasSharedQuery ? kSteps * sizeof(Pairs) : 0;
    return kThreads * (kSumBytes + kQueryBytes);
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
        merged_(DynamicShared<float>()),
        shared_query_(reinterpret_cast<Pairs*>(merged_ + kChunks * kSums * kThreads)) {
    const RequestRows rows(call.params, call.batch, item.request, kv_head);
    const int first = item.first_row + Warp() * kWarpRows, left = rows.NumRows() - first;
    row_ = rows.Row(first + Lane() % 16);
    total_ = row_.exists ? StateBefore(call.params, row_.head) : SoftmaxState{0, 1};
    low_ = rows.Row(first).low;
    high_ = left > 0 ? rows.Row(first + (left < kWarpRows ? left : kWarpRows) - 1).high : 0;
  }

  PAGEMILL_DEVICE void Run(const SplitStates& states) {
    if constexpr (Cores::kDoublesFactors) return;  // too few registers: not chosen on these GPUs
    const int first = item_.first_split * kSplitKeys, end_split = item_.end_split * kSplitKeys;
    const int end = end_split < high_ ? end_split : high_;
    LoadQuery();
    for (int tile = first < low_ ? low_ / kTileKeys * kTileKeys : first; tile < end;) {
      Scores scores = {};
      MultiplyKeys(tile, scores);
      Weights weights;
      Weigh(tile, scores, weights);
      if (!AddValues(tile, weights)) MarkNaN(tile);
      tile += kTileKeys;
      if (tile % kSplitKeys == 0 || tile >= end) EndSplit(states);
    }
    if (item_.state < 0) StoreMeans();
  }

 private:
  using Cores = MatrixCores<kLanes>;
  static constexpr int kParts = Cores::kParts, kSums = Cores::kSums;
  static constexpr int kSteps = 16 * kChunks / Cores::kColumns;  // of a product with keys
  // Warps of 32 lanes have twice the sums in each, and registers for half of the keys.
  static constexpr int kLaneKeys = kLanes / 8;
  static constexpr int kTileKeys = 16 * kLaneKeys;
  // Nor have they registers for the query, or for all elements of values at once.
  static constexpr bool kHasSharedQuery = kLanes == 32;
  using Pairs = Vector<uint32_t, 4>;
  static constexpr int kElements = kLanes == 32 ? 4 : kChunks;
  using Elements = Vector<C, kElements>;
  using Scores = float[kLaneKeys][kSums];
  // Of products with values; in each a lane has kPiece keys.
  static constexpr int kProducts = kSums * kLaneKeys / kPiece;
  using Weights = uint32_t[kProducts][kPiece / 2];

  template <typename Combine>
  PAGEMILL_DEVICE static float ReduceRow(float value, Combine combine) {
    PAGEMILL_UNROLL
    for (int bits = 16; bits < kLanes; bits *= 2) {
      value = combine(value, ShuffleXor(AllLanes(), value, bits));
    }
    return value;
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

  // The first key of the lane's scores [n][i].
  PAGEMILL_DEVICE static int FirstKey(int tile, int i) {
    return tile + kLaneKeys * Cores::RowOfSum(i);
  }

  // `key`, a multiple of kLaneKeys, if the warp sees one of as many keys from it on, and else the
  // first such key: loads are never conditional, and what they bring of other keys is not used.
  PAGEMILL_DEVICE int LoadedKey(int key) const {
    return key < high_ && key + kLaneKeys > low_ ? key : low_ / kLaneKeys * kLaneKeys;
  }
  PAGEMILL_DEVICE const C* BlockOf(int key) const { return cache_[table_[key / block_size_]]; }

  // The first of kChunks elements of the head with sums_[m][i].
  PAGEMILL_DEVICE int FirstElement(int i) const { return kChunks * Cores::RowOfSum(i); }

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
      Pairs query;
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int first = Cores::kColumns * c + 2 * kParts * i;
        const bool exists = row_.exists && first < head_dim_;
        const int d = exists ? first : 0;
        const uint32_t pair = PackBFloat16(ToFloat(from[d]), ToFloat(from[d + kParts]));
        query.values[i] = exists ? pair : 0;
      }
      QueryAt(c) = query;
    }
  }

  // A lane has keys kLaneKeys * g to kLaneKeys * (g + 1) - 1 of the tile as rows of its factors.
  PAGEMILL_DEVICE void MultiplyKeys(int tile, Scores& scores) {
    const int key = LoadedKey(tile + Lane() % 16 * kLaneKeys);
    const C* const from = BlockOf(key) + (kv_head_ * head_dim_ + Lane() / 16) * block_size_ +
                          key % block_size_;
    PAGEMILL_UNROLL
    for (int c = 0; c < kSteps; ++c) {
      if (c * Cores::kColumns >= head_dim_) break;
      Vector<C, kLaneKeys> rows[kPiece];
      PAGEMILL_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const int d = Cores::kColumns * c + kParts * j;
        const bool exists = d < head_dim_;
        const C* const piece = from + (exists ? d : 0) * block_size_;
        rows[j] = *reinterpret_cast<const Vector<C, kLaneKeys>*>(piece);
        if (!exists) rows[j] = {};
      }
      const Pairs query = QueryAt(c);
      PAGEMILL_UNROLL
      for (int n = 0; n < kLaneKeys; ++n) {
        uint32_t keys[kPiece / 2];
        TakeColumn(rows, n, keys);
        Cores::Multiply(keys, query.values, scores[n]);
      }
    }
  }

  // Makes weights of scores, rounded to bf16 in pairs, with a maximum that is the split's so far.
  PAGEMILL_DEVICE void Weigh(int tile, Scores& scores, Weights& weights) {
    float most = split_.most;
    PAGEMILL_UNROLL
    for (int i = 0; i < kSums; ++i) {
      PAGEMILL_UNROLL
      for (int n = 0; n < kLaneKeys; ++n) {
        const int key = FirstKey(tile, i) + n;
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
    for (int i = 0; i < kSums; ++i) {
      PAGEMILL_UNROLL
      for (int n = 0; n < kLaneKeys; n += 2) {
        BFloat16 pair[2];
        PAGEMILL_UNROLL
        for (int k = 0; k < 2; ++k) {
          const float score = scores[n + k][i];
          pair[k] = FromFloat<BFloat16>(score == -INFINITY ? 0 : Exp(score - most));
          sum += ToFloat(pair[k]);
        }
        const int place = (i * kLaneKeys + n) / 2;
        weights[place / (kPiece / 2)][place % (kPiece / 2)] = PairOf(pair[0], pair[1]);
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
        !row_.exists || (tile >= row_.low && tile + kTileKeys <= row_.high);
    return Ballot(AllLanes(), !all) == 0;
  }

  PAGEMILL_DEVICE const C* RowOfValues(int key) const {
    const int row = (static_cast<int>(call_.params.kv_heads) + kv_head_) * block_size_ +
                    key % block_size_;
    return BlockOf(key) + row * head_dim_;
  }

  // The lane's elements, from its `first` on, of kLaneKeys rows of values from `key` on, any for
  // keys that are not seen.
  PAGEMILL_DEVICE void LoadRows(int key, int first, Elements* rows) const {
    const C* const from = RowOfValues(LoadedKey(key)) + FirstValue() + first;
    PAGEMILL_UNROLL
    for (int r = 0; r < kLaneKeys; ++r) {
      rows[r] = *reinterpret_cast<const Elements*>(from + r * head_dim_);
    }
  }

  // The first element of the head that this lane has of values, any if there are none for it.
  PAGEMILL_DEVICE int FirstValue() const {
    const int first = Lane() % 16 * kChunks;
    return first < head_dim_ ? first : 0;
  }

  // The values of product i, likewise.
  PAGEMILL_DEVICE void LoadValues(int tile, int i, int first, Elements (&rows)[kPiece]) const {
    PAGEMILL_UNROLL
    for (int r = 0; r < kPiece; r += kLaneKeys) {
      LoadRows(FirstKey(tile, (i * kPiece + r) / kLaneKeys), first, &rows[r]);
    }
  }

  PAGEMILL_DEVICE static bool IsFinite(C value) { return fabsf(ToFloat(value)) < INFINITY; }

  // Makes elements of product i that are not finite zeros. True if a lane of the warp has one of a key
  // that the warp sees.
  PAGEMILL_DEVICE bool LeaveOutNotFinite(int tile, int i, Elements (&rows)[kPiece]) const {
    bool any = false;
    PAGEMILL_UNROLL
    for (const Elements& row : rows) {
      PAGEMILL_UNROLL
      for (C value : row.values) any |= !IsFinite(value);
    }
    if (Ballot(AllLanes(), any) == 0) return false;
    bool is_seen = false;
    PAGEMILL_UNROLL
    for (int r = 0; r < kPiece; ++r) {
      const int key = FirstKey(tile, (i * kPiece + r) / kLaneKeys) + r % kLaneKeys;
      PAGEMILL_UNROLL
      for (C& value : rows[r].values) {
        if (IsFinite(value)) continue;
        is_seen |= key >= low_ && key < high_;
        value = {};
      }
    }
    return Ballot(AllLanes(), is_seen) != 0;
  }

  // A lane has elements kChunks * g to kChunks * (g + 1) - 1 of values as rows of its factors. The
  // instruction would multiply values that are not finite with the zeros of rows that do not see
  // them: where there are such rows they are left out, and the result is false.
  PAGEMILL_DEVICE bool AddValues(int tile, const Weights& weights) {
    const bool all_see = AllSee(tile);
    bool has_all = true;
    PAGEMILL_UNROLL
    for (int e = 0; e < kProducts * kChunks; e += kElements) {
      const int i = e / kChunks, first = e % kChunks;
      Elements rows[kPiece];
      LoadValues(tile, i, first, rows);
      if (!all_see && LeaveOutNotFinite(tile, i, rows)) has_all = false;
      PAGEMILL_UNROLL
      for (int m = 0; m < kElements; ++m) {
        uint32_t values[kPiece / 2];
        TakeColumn(rows, m, values);
        Cores::Multiply(values, weights[i], sums_[first + m]);
      }
    }
    return has_all;
  }

  // Makes sums NaN of the rows that see a value that is not finite.
  PAGEMILL_DEVICE void MarkNaN(int tile) {
    const int end = tile + kTileKeys < row_.high ? tile + kTileKeys : row_.high;
    for (int key = tile > row_.low ? tile : row_.low; key < end; ++key) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kSums; ++i) {
        if (FirstElement(i) >= head_dim_) continue;
        const C* const values = RowOfValues(key) + FirstElement(i);
        PAGEMILL_UNROLL
        for (int m = 0; m < kChunks; ++m) {
          if (!IsFinite(values[m])) sums_[m][i] = NAN;
        }
      }
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
      for (int i = 0; i < kSums; ++i) {
        float& total = MergedValue(m, i);
        total = Merged(has_total_ ? total : 0, sums_[m][i], factors);
      }
    }
  }

  PAGEMILL_DEVICE void StoreState(float* row) const {
    PAGEMILL_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (FirstElement(i) >= head_dim_) continue;
      auto* const to = reinterpret_cast<Vector<float, 2>*>(row + FirstElement(i));
      PAGEMILL_UNROLL
      for (int m = 0; m < kChunks; m += 2) to[m / 2] = {sums_[m][i], sums_[m + 1][i]};
    }
    if (Lane() / 16 != 0) return;
    *reinterpret_cast<Vector<float, 2>*>(row + head_dim_) = {split_.most, split_.sum};
  }

  PAGEMILL_DEVICE void StoreMeans() const {
    if (!row_.exists) return;
    for (int i = 0; i < kSums; ++i) {
      if (FirstElement(i) >= head_dim_) continue;
      for (int m = 0; m < kChunks; ++m) {
        call_.y.Store(row_.token, row_.head * head_dim_ + FirstElement(i) + m,
                      Mean(MergedValue(m, i), total_, call_.params));
      }
    }
  }

  PAGEMILL_DEVICE Pairs& QueryAt(int c) {
    if constexpr (kHasSharedQuery) {
      return shared_query_[c * kThreads + static_cast<int>(ThreadIndex().x)];
    } else {
      return query_[c];
    }
  }

  // Each thread has its own, in its bank.
  PAGEMILL_DEVICE float& MergedValue(int m, int i) const {
    return merged_[(m * kSums + i) * kThreads + static_cast<int>(ThreadIndex().x)];
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
  Pairs* const shared_query_;
  Pairs query_[kHasSharedQuery ? 1 : kSteps];  // where it is not shared
  float sums_[kChunks][kSums] = {};
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_MATRIX_ITEM_H_
