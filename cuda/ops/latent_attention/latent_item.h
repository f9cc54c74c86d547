// File: cuda/ops/latent_attention/latent_item.h
// A tile of kWarpRows rows and its keys, by a block of four warps, on tensor cores: what the kernel
// of tensor_cores.cc computes.
//
//   using Item = LatentItem<Pages, /*kChunks=*/8>;  // Item::kThreads threads
//   Item(call, pages, item).Run(states);
//
// A tile of keys lies in shared memory once: its first elements are the values. Each warp scores a
// quarter of the keys and, with the weights of all, adds up a quarter of the values' columns.
// Pages: LatentPages<BFloat16> or LatentF8Pages. kChunks: of 16 columns, of a warp, at most.
#ifndef PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ITEM_H_
#define PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ITEM_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/attention/weighted_values.h"
#include "cuda/ops/latent_attention/key_tiles.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_rows.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/split_state.h"

namespace pagemill::gpu {

struct LatentCall {
  AttentionCall attention;  // head_dim is that of latents
  Activations rope;
  int rope_size;
};

// A lane holds two rows, g and g + 8 for g = Lane() / 4, as Mma16x8x16 has them, in every warp.
template <typename PagesOfItem, int kChunks>
class LatentItem {
 public:
  using Pages = PagesOfItem;
  static constexpr int kWarps = kLatentThreads / 32;
  static constexpr int kThreads = kLatentThreads;
  static constexpr int kBlocks = 1;  // on a multiprocessor at least

  static int64_t SharedBytes(const Pages& pages, int64_t width) {
    const int64_t elements = kWarpRows * (width + kRowPadding) + kWarpRows * kWeightStride;
    return KeyTiles<Pages>::Bytes(pages) + elements * static_cast<int64_t>(sizeof(BFloat16)) +
           2 * kWarps * kWarpRows * static_cast<int64_t>(sizeof(float));
  }

  PAGEMILL_DEVICE LatentItem(const LatentCall& call, const Pages& pages, const AttentionItem& item)
      : call_(call.attention),
        rope_(call.rope),
        pages_(pages),
        item_(item),
        latent_(static_cast<int>(call_.params.head_dim)),
        rope_size_(call.rope_size),
        rows_(call_.params, call_.batch, item.request, /*kv_head=*/0),
        queries_(DynamicShared<BFloat16>()),
        weights_(queries_ + kWarpRows * Stride()),
        maxima_(reinterpret_cast<float*>(weights_ + kWarpRows * kWeightStride)),
        sums_of_warps_(maxima_ + kWarps * kWarpRows),
        tiles_(reinterpret_cast<std::byte*>(sums_of_warps_ + kWarps * kWarpRows)) {
    const int end_row = item.first_row + kWarpRows;
    high_ = rows_.Row((end_row < rows_.NumRows() ? end_row : rows_.NumRows()) - 1).high;
    for (int r = 0; r < 2; ++r) row_[r] = rows_.Row(item.first_row + OwnRow(r));
  }

  PAGEMILL_DEVICE void Run(const SplitStates& states) {
    const int first = item_.first_split * kSplitKeys, end_split = item_.end_split * kSplitKeys;
    const int end = end_split < high_ ? end_split : high_;
    KeyTiles<Pages> tiles(pages_,
                          {.table = call_.batch.data + item_.request * call_.batch.table_stride,
                           .block_size = call_.batch.block_size,
                           .high = high_,
                           .width = Width()},
                          tiles_);
    tiles.Copy(first);
    LoadQueries();
    for (int tile = first; tile < end; tile += kKeys) {
      const BFloat16* const keys = tiles.Await();  // the weights before have been read, too
      const int next = tile + kKeys;
      if (next < end) tiles.Copy(next);
      float scores[4] = {};
      MultiplyKeys(keys, scores);
      Weigh(tile, scores);
      SyncBlock();  // the weights are there
      if (AllSee(tile)) {
        AddValues<true>(keys);
      } else {
        AddValues<false>(keys);
      }
      if (next % kSplitKeys == 0 || next >= end) EndSplit(states);
    }
    if (item_.state < 0) StoreMeans();
  }

 private:
  static constexpr int kKeys = kTileLatents;
  static constexpr int kOwnKeys = kKeys / kWarps;
  static constexpr int kWeightStride = kKeys + kRowPadding;
  static_assert(kSplitKeys % kKeys == 0 && kOwnKeys == 8);

  PAGEMILL_DEVICE int Width() const { return latent_ + rope_size_; }
  PAGEMILL_DEVICE int Stride() const { return Width() + kRowPadding; }
  PAGEMILL_DEVICE static int OwnRow(int r) { return Lane() / 4 + 8 * r; }
  // The first column of a warp's chunk.
  PAGEMILL_DEVICE static int ColumnOf(int chunk) { return (chunk * kWarps + Warp()) * 16; }
  PAGEMILL_DEVICE static uint32_t PairAt(const BFloat16* from) {
    return *reinterpret_cast<const uint32_t*>(from);
  }

  PAGEMILL_DEVICE void LoadQueries() {
    constexpr int kAtOnce = 6;  // loads of a lane that are under way
    for (int row = Warp(); row < kWarpRows; row += kWarps) {
      const TileRow of = rows_.Row(item_.first_row + row);
      const auto* const latent = call_.q.template At<BFloat16>(of.token, of.head * latent_);
      const auto* const rope = rope_.template At<BFloat16>(of.token, of.head * rope_size_) - latent_;
      for (int first = Lane(); first < Width(); first += 32 * kAtOnce) {
        BFloat16 values[kAtOnce];
        PAGEMILL_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int d = first + 32 * i;
          values[i] = of.exists && d < Width() ? (d < latent_ ? latent : rope)[d] : BFloat16{0};
        }
        PAGEMILL_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int d = first + 32 * i;
          if (d < Width()) queries_[row * Stride() + d] = values[i];
        }
      }
    }
  }

  // Dot products of the warp's keys: scores[i] is of row g + 8 * (i / 2) and key 2 * t + i % 2.
  PAGEMILL_DEVICE void MultiplyKeys(const BFloat16* keys, float (&scores)[4]) const {
    const int t = Lane() % 4, g = Lane() / 4;
    const BFloat16* const query = queries_ + g * Stride() + 2 * t;
    const BFloat16* const key = keys + (Warp() * kOwnKeys + g) * Stride() + 2 * t;
    for (int d = 0; d < Width(); d += 16) {
      const uint32_t a[4] = {PairAt(query + d), PairAt(query + 8 * Stride() + d),
                             PairAt(query + d + 8), PairAt(query + 8 * Stride() + d + 8)};
      Mma16x8x16(scores, a, {PairAt(key + d), PairAt(key + d + 8)});
    }
  }

  // Makes weights of scores, rounded to bf16 in pairs, with a maximum that is the split's so far.
  PAGEMILL_DEVICE void Weigh(int tile, float (&scores)[4]) {
    const int key = Warp() * kOwnKeys + Lane() % 4 * 2;
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = -INFINITY;
      PAGEMILL_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = scores[2 * r + i];
        const bool is_seen = tile + key + i < row_[r].high;
        score = is_seen ? RoundedProduct(score, call_.params.scale) : -INFINITY;
        most = fmaxf(most, score);
      }
      most = WarpReduce(most, Max{}, 4);
      if (Lane() % 4 == 0) maxima_[Warp() * kWarpRows + OwnRow(r)] = most;
    }
    SyncBlock();  // the maxima of all warps are there
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = split_[r].most;
      for (int warp = 0; warp < kWarps; ++warp) {
        most = fmaxf(most, maxima_[warp * kWarpRows + OwnRow(r)]);
      }
      const float kept = split_[r].most == most ? 1 : Exp(split_[r].most - most);
      BFloat16 pair[2];
      float sum = 0;
      PAGEMILL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float score = scores[2 * r + i];
        pair[i] = FromFloat<BFloat16>(score == -INFINITY ? 0 : Exp(score - most));
        sum += ToFloat(pair[i]);
      }
      *reinterpret_cast<uint32_t*>(weights_ + OwnRow(r) * kWeightStride + key) =
          PairOf(pair[0], pair[1]);
      split_[r] = {most, fmaf(split_[r].sum, kept, sum)};  // the sum is this lane's
      PAGEMILL_UNROLL
      for (int n = 0; n < 2 * kChunks; ++n) {
        sums_[n][2 * r] *= kept;
        sums_[n][2 * r + 1] *= kept;
      }
    }
  }

  // True if every row sees the whole tile.
  PAGEMILL_DEVICE bool AllSee(int tile) const {
    bool all = true;
    for (const TileRow& row : row_) all = all && (!row.exists || tile + kKeys <= row.high);
    return Ballot(AllLanes(), !all) == 0;
  }

  template <bool kAllSeen>
  PAGEMILL_DEVICE void AddValues(const BFloat16* keys) {
    const BFloat16* const weight = weights_ + OwnRow(0) * kWeightStride + Lane() % 4 * 2;
    const BFloat16* const value = keys + Lane() % 16 * Stride() + Lane() / 16 * 8;
    PAGEMILL_UNROLL
    for (int n = 0; n < kKeys; n += 16) {
      const uint32_t a[4] = {PairAt(weight + n), PairAt(weight + 8 * kWeightStride + n),
                             PairAt(weight + n + 8), PairAt(weight + 8 * kWeightStride + n + 8)};
      PAGEMILL_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (ColumnOf(chunk) >= latent_) break;
        uint32_t b[4];
        LoadTransposed(b, value + n * Stride() + ColumnOf(chunk));
        AddValueProduct<kAllSeen>(a, {b[0], b[1]}, sums_[2 * chunk]);
        AddValueProduct<kAllSeen>(a, {b[2], b[3]}, sums_[2 * chunk + 1]);
      }
    }
  }

  // Merges the split into the total, or stores its state, and starts anew.
  PAGEMILL_DEVICE void EndSplit(const SplitStates& states) {
    for (int r = 0; r < 2; ++r) {
      const float sum = WarpReduce(split_[r].sum, Sum{}, 4);
      if (Lane() % 4 == 0) sums_of_warps_[Warp() * kWarpRows + OwnRow(r)] = sum;
    }
    SyncBlock();  // the sums of all warps are there
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      split_[r].sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) {
        split_[r].sum += sums_of_warps_[warp * kWarpRows + OwnRow(r)];
      }
      if (item_.state < 0) {
        MergeSplit(r, Merge(split_[r], &total_[r]));
      } else if (row_[r].exists) {
        StoreState(r, states.Row(item_.state, /*kv_head=*/0, OwnRow(r)));
      }
      split_[r] = {-INFINITY, 0};
    }
    PAGEMILL_UNROLL
    for (auto& sums : sums_) {
      for (float& sum : sums) sum = 0;
    }
  }

  PAGEMILL_DEVICE void MergeSplit(int r, const MergeFactors& factors) {
    PAGEMILL_UNROLL
    for (int n = 0; n < 2 * kChunks; ++n) {
      PAGEMILL_UNROLL
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        merged_[n][i] = Merged(merged_[n][i], sums_[n][i], factors);
      }
    }
  }

  // The column of sums_[n][0].
  PAGEMILL_DEVICE static int ColumnOfSum(int n) {
    return ColumnOf(n / 2) + n % 2 * 8 + Lane() % 4 * 2;
  }

  PAGEMILL_DEVICE void StoreState(int r, float* row) const {
    PAGEMILL_UNROLL
    for (int n = 0; n < 2 * kChunks; ++n) {
      if (ColumnOf(n / 2) >= latent_) break;
      *reinterpret_cast<Vector<float, 2>*>(row + ColumnOfSum(n)) = {sums_[n][2 * r],
                                                                    sums_[n][2 * r + 1]};
    }
    if (Warp() != 0 || Lane() % 4 != 0) return;
    *reinterpret_cast<Vector<float, 2>*>(row + latent_) = {split_[r].most, split_[r].sum};
  }

  PAGEMILL_DEVICE void StoreMeans() const {
    PAGEMILL_UNROLL
    for (int n = 0; n < 2 * kChunks; ++n) {
      if (ColumnOf(n / 2) >= latent_) break;
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const TileRow& row = row_[i / 2];
        if (!row.exists) continue;
        call_.y.Store(row.token, row.head * latent_ + ColumnOfSum(n) + i % 2,
                      Mean(merged_[n][i], total_[i / 2], call_.params));
      }
    }
  }

  const AttentionCall& call_;
  const Activations rope_;
  const Pages pages_;
  const AttentionItem item_;
  const int latent_, rope_size_;
  const RequestRows rows_;
  BFloat16* const queries_;      // [kWarpRows, Stride()]
  BFloat16* const weights_;      // [kWarpRows, kWeightStride]
  float* const maxima_;          // [kWarps, kWarpRows]
  float* const sums_of_warps_;   // likewise
  std::byte* const tiles_;       // of KeyTiles
  int high_;                     // behind the keys that some row sees
  TileRow row_[2];
  SoftmaxState split_[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  SoftmaxState total_[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  float sums_[2 * kChunks][4] = {};
  float merged_[2 * kChunks][4] = {};  // of the splits before
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_ATTENTION_LATENT_ITEM_H_
