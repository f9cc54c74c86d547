// File: cuda/ops/paged_attention/attend_item.h
// A tile of rows and its keys, by a block, on tensor cores: what the kernels of attention_items.h
// compute for tensor_cores.cc.
//
//   using Item = AttendItem<BFloat16, /*kChunks=*/8, /*kMany=*/true>;  // Item::kThreads threads
//   Item(call, cache, item, kv_head).Run(states);
//
// kChunks: of 16 elements of a head, at most. kMany: tiles of kFewRows rows, not of kWarpRows.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_ITEM_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_ITEM_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/attention/weighted_values.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_rows.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/page_tile.h"
#include "cuda/ops/paged_attention/split_state.h"

namespace pagemill::gpu {

// The tile of an item, with its keys. A lane holds two of its warp's rows, g and g + 8 for
// g = Lane() / 4, as Mma16x8x16 has them.
template <typename C, int kChunks, bool kMany>
class AttendItem {
 public:
  using Cache = C;
  static constexpr bool kIsOfMany = kMany;
  static constexpr int kWarps = kMany ? kFewRows / kWarpRows : 1;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocks = 1;  // on a multiprocessor at least
  static constexpr int kRows = kWarpRows * kWarps;
  // Sums of large heads take the registers, and their rows the shared memory, of more.
  static constexpr int kTileKeys = kChunks > 8 ? 32 : 64;

  static int64_t SharedBytes(int64_t head_dim) {
    const int64_t rows = (kRows + kTileKeys) * (head_dim + kRowPadding);
    return (rows + head_dim * Pages::kKeyStride) * static_cast<int64_t>(sizeof(BFloat16)) +
           head_dim * kRows * static_cast<int64_t>(sizeof(float));
  }

  PAGEMILL_DEVICE AttendItem(const AttentionCall& call, Rows<const C> cache,
                             const AttentionItem& item, int kv_head)
      : call_(call),
        item_(item),
        head_dim_(static_cast<int>(call.params.head_dim)),
        rows_(call.params, call.batch, item.request, kv_head),
        queries_(DynamicShared<BFloat16>()),
        keys_(queries_ + kRows * Stride()),
        values_(keys_ + head_dim_ * Pages::kKeyStride),
        merged_(reinterpret_cast<float*>(values_ + kTileKeys * Stride())) {
    const int last = rows_.NumRows() - item.first_row < kRows ? rows_.NumRows() - 1
                                                              : item.first_row + kRows - 1;
    pages_ = {.cache = cache,
              .table = call.batch.data + item.request * call.batch.table_stride,
              .block_size = static_cast<int>(call.params.block_size),
              .head_dim = head_dim_,
              .kv_head = kv_head,
              .kv_heads = call.params.kv_heads,
              .low = rows_.Row(item.first_row).low,
              .high = rows_.Row(last).high};
    for (int r = 0; r < 2; ++r) {
      row_[r] = rows_.Row(item.first_row + FirstRow() + 8 * r);
      total_[r] = row_[r].exists ? StateBefore(call.params, row_[r].head) : SoftmaxState{0, 1};
    }
  }

  PAGEMILL_DEVICE void Run(const SplitStates& states) {
    const int first = item_.first_split * kSplitKeys, end_split = item_.end_split * kSplitKeys;
    const int end = end_split < pages_.high ? end_split : pages_.high;
    int tile = first < pages_.low ? pages_.low / kTileKeys * kTileKeys : first;
    pages_.CopyKeys(tile, keys_, kThreads);
    LoadQueries();
    for (; tile < end; tile += kTileKeys) {
      WaitCopies<0>();
      SyncBlock();  // the keys are there, and the values before have been read
      pages_.CopyValues(tile, values_, kThreads);
      float scores[kTileKeys / 8][4] = {};
      MultiplyKeys(scores);
      uint32_t weights[kTileKeys / 8][2];
      Weigh(tile, scores, weights);
      WaitCopies<0>();
      SyncBlock();  // the values are there, and the keys have been read
      const int next = tile + kTileKeys;
      if (next < end) pages_.CopyKeys(next, keys_, kThreads);
      if (AllSee(tile)) {
        AddValues<true>(weights, values_, Stride(), head_dim_, sums_);
      } else {
        AddValues<false>(weights, values_, Stride(), head_dim_, sums_);
      }
      if (next % kSplitKeys == 0 || next >= end) EndSplit(states);
    }
    if (item_.state < 0) StoreMeans();
  }

 private:
  using Pages = PageTile<C, kTileKeys>;

  PAGEMILL_DEVICE int Stride() const { return head_dim_ + kRowPadding; }
  PAGEMILL_DEVICE static int FirstRow() { return Warp() * kWarpRows + Lane() / 4; }

  PAGEMILL_DEVICE void LoadQueries() {
    if (call_.q.type == DType::kBF16) return LoadQueriesOf<BFloat16>();
    if (call_.q.type == DType::kF16) return LoadQueriesOf<Half>();
    LoadQueriesOf<float>();
  }

  template <typename T>
  PAGEMILL_DEVICE void LoadQueriesOf() {
    constexpr int kAtOnce = 2;         // rows, all of whose loads are under way
    constexpr int kLoads = kChunks / 2;  // of a lane
    for (int first = Warp(); first < kRows; first += kAtOnce * kWarps) {
      BFloat16 values[kAtOnce][kLoads];
      PAGEMILL_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        const TileRow of = rows_.Row(item_.first_row + first + r * kWarps);
        const T* const from = call_.q.template At<T>(of.token, of.head * head_dim_);
        PAGEMILL_UNROLL
        for (int i = 0; i < kLoads; ++i) {
          const int d = Lane() + 32 * i;
          values[r][i] = FromFloat<BFloat16>(of.exists && d < head_dim_ ? ToFloat(from[d]) : 0);
        }
      }
      PAGEMILL_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        PAGEMILL_UNROLL
        for (int i = 0; i < kLoads; ++i) {
          const int d = Lane() + 32 * i;
          if (d < head_dim_) queries_[(first + r * kWarps) * Stride() + d] = values[r][i];
        }
      }
    }
  }

  // Dot products: scores[n][i] is of row g + 8 * (i / 2) and key 8 * n + 2 * t + i % 2 of the tile.
  PAGEMILL_DEVICE void MultiplyKeys(float (&scores)[kTileKeys / 8][4]) const {
    const BFloat16* const query = queries_ + FirstRow() * Stride() + Lane() % 4 * 2;
    const auto pair = [&](int row, int d) {
      return *reinterpret_cast<const uint32_t*>(query + row * Stride() + d);
    };
    const BFloat16* const key = keys_ + Lane() % 16 * Pages::kKeyStride + Lane() / 16 * 8;
    for (int d = 0; d < head_dim_; d += 16) {
      const uint32_t a[4] = {pair(0, d), pair(8, d), pair(0, d + 8), pair(8, d + 8)};
      PAGEMILL_UNROLL
      for (int n = 0; n < kTileKeys / 8; n += 2) {
        uint32_t b[4];
        LoadTransposed(b, key + d * Pages::kKeyStride + n * 8);
        Mma16x8x16(scores[n], a, {b[0], b[1]});
        Mma16x8x16(scores[n + 1], a, {b[2], b[3]});
      }
    }
  }

  PAGEMILL_DEVICE void Weigh(int tile, float (&scores)[kTileKeys / 8][4],
                             uint32_t (&weights)[kTileKeys / 8][2]) {
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const TileRow& row = row_[r];
      PAGEMILL_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) {
        PAGEMILL_UNROLL
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          const int key = tile + 8 * n + Lane() % 4 * 2 + i % 2;
          const bool seen = key >= row.low && key < row.high;
          scores[n][i] = seen ? Score(call_.params, scores[n][i], row.head, row.growth,
                                      key - row.position)
                              : -INFINITY;
        }
      }
      const float kept = WeighRow(r, scores, split_[r], weights);
      if (Ballot(AllLanes(), kept != 1) == 0) continue;  // most tiles have no larger score
      PAGEMILL_UNROLL
      for (int n = 0; n < 2 * kChunks; ++n) {
        sums_[n][2 * r] *= kept;
        sums_[n][2 * r + 1] *= kept;
      }
    }
  }

  // True if every row of the warp sees the whole tile.
  PAGEMILL_DEVICE bool AllSee(int tile) const {
    bool all = true;
    for (const TileRow& row : row_) {
      all = all && (!row.exists || (tile >= row.low && tile + kTileKeys <= row.high));
    }
    return Ballot(AllLanes(), !all) == 0;
  }

  // Merges the split into the total, or stores its state, and starts anew.
  PAGEMILL_DEVICE void EndSplit(const SplitStates& states) {
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      split_[r].sum = WarpReduce(split_[r].sum, Sum{}, 4);
      if (item_.state < 0) {
        MergeSplit(r, Merge(split_[r], &total_[r]));
      } else if (row_[r].exists) {
        StoreState(r, states.Row(item_.state, pages_.kv_head, FirstRow() + 8 * r));
      }
      split_[r] = {-INFINITY, 0};
    }
    has_total_ = true;
    PAGEMILL_UNROLL
    for (auto& sums : sums_) {
      for (float& sum : sums) sum = 0;
    }
  }

  PAGEMILL_DEVICE void MergeSplit(int r, const MergeFactors& factors) {
    PAGEMILL_UNROLL
    for (int n = 0; n < 2 * kChunks; ++n) {
      if (n * 8 >= head_dim_) break;
      PAGEMILL_UNROLL
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        float& total = MergedValue(n, i);
        total = Merged(has_total_ ? total : 0, sums_[n][i], factors);
      }
    }
  }

  PAGEMILL_DEVICE void StoreState(int r, float* row) const {
    PAGEMILL_UNROLL
    for (int n = 0; n < 2 * kChunks; ++n) {
      if (n * 8 >= head_dim_) break;
      *reinterpret_cast<Vector<float, 2>*>(row + n * 8 + Lane() % 4 * 2) = {sums_[n][2 * r],
                                                                            sums_[n][2 * r + 1]};
    }
    if (Lane() % 4 != 0) return;
    *reinterpret_cast<Vector<float, 2>*>(row + head_dim_) = {split_[r].most, split_[r].sum};
  }

  PAGEMILL_DEVICE void StoreMeans() const {
    for (int n = 0; n * 8 < head_dim_; ++n) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const TileRow& row = row_[i / 2];
        if (!row.exists) continue;
        call_.y.Store(row.token, row.head * head_dim_ + n * 8 + Lane() % 4 * 2 + i % 2,
                      Mean(MergedValue(n, i), total_[i / 2], call_.params));
      }
    }
  }

  // Each thread has its own, in its bank.
  PAGEMILL_DEVICE float& MergedValue(int n, int i) const {
    return merged_[(n * 4 + i) * kThreads + static_cast<int>(ThreadIndex().x)];
  }

  const AttentionCall& call_;
  const AttentionItem item_;
  const int head_dim_;
  const RequestRows rows_;
  Pages pages_;
  BFloat16* const queries_;  // [kRows, Stride()]
  BFloat16* const keys_;     // [head_dim, Pages::kKeyStride]
  BFloat16* const values_;   // [kTileKeys, Stride()]
  float* const merged_;      // sums of the splits before
  TileRow row_[2];
  SoftmaxState split_[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  SoftmaxState total_[2];
  bool has_total_ = false;
  float sums_[2 * kChunks][4] = {};
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_ATTEND_ITEM_H_
