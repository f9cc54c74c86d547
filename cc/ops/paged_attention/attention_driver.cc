#include "cc/ops/paged_attention/attention_driver.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <span>

#include "cc/ops/kv_page.h"
#include "cc/ops/paged_attention/attention_tile_list.h"
#include "cc/ops/paged_attention/attention_workspace.h"

namespace pagemill::ops {
namespace {

// With fewer tiles per thread than this, threads also divide the splits of tiles.
constexpr int64_t kFewTilesPerThread = 4;

// Elements of a key or a value in the cache, as AttentionShape::key_size counts them.
int32_t RowSize(DType row, int64_t head_dim) {
  return static_cast<int32_t>(row == DType::kU4 ? KvRowBytes(row, head_dim) : head_dim);
}

AttentionShape MakeShape(const PagedAttentionArgs& args) {
  constexpr float kLog2E = 1.44269504f;
  AttentionShape shape;
  shape.head_dim = static_cast<int32_t>(args.q.shape[2]);
  shape.padded_dim = static_cast<int32_t>(AttentionSizes::Of(args, 1).padded_dim);
  const KvTypes types = KvTypesOf(args.cache.dtype);
  shape.key_size = RowSize(types.key, args.q.shape[2]);
  shape.value_size = RowSize(types.value, args.q.shape[2]);
  shape.kv_heads = args.kv_heads;
  shape.group = static_cast<int32_t>(args.q.shape[1]) / args.kv_heads;
  shape.block_size = args.batch->block_size;
  shape.window = args.window;
  shape.chunked = args.chunked;
  shape.causal = args.causal;
  shape.encoder_keys = args.encoder_keys;
  shape.decoder_keys = args.decoder_keys;
  const bool capped = args.soft_cap > 0;
  const float scale = args.scale * args.kv_scales.k;
  shape.query_scale = capped ? scale / args.soft_cap : scale * kLog2E;
  shape.value_scale = args.kv_scales.v;
  shape.soft_cap = args.soft_cap * kLog2E;
  shape.grows_from = args.grows_from;
  if (args.grows_from > 0) {
    shape.growth = static_cast<float>(1 / std::log(static_cast<double>(args.grows_from)));
  }
  shape.sinks = args.sinks;
  shape.slopes = args.slopes;
  shape.biases = args.biases;
  shape.bias_unit = capped ? 1 / args.soft_cap : kLog2E;
  shape.cache = args.cache.data;
  shape.block_stride_bytes = args.cache.row_stride_bytes;
  return shape;
}

const AttentionKernel& KernelFor(const AttentionKernels& kernels, DType cache) {
  if (cache == DType::kF32) return kernels.f32;
  if (cache == DType::kBF16) return kernels.bf16;
  if (cache == DType::kF8E4M3) return kernels.f8;
  if (cache == DType::kK8V4) return kernels.k8v4;
  return cache == DType::kU4 ? kernels.int4 : kernels.int8;
}

class Driver {
 public:
  Driver(const AttentionKernels& kernels, const PagedAttentionArgs& args, KernelContext& context)
      : kernel_(KernelFor(kernels, args.cache.dtype)),
        args_(args),
        shape_(MakeShape(args)),
        pool_(*context.pool),
        workspace_(context.workspace.data(), AttentionSizes::Of(args, context.pool->num_threads())),
        plan_(*reinterpret_cast<const AttentionPlan*>(context.plan)),
        tiles_(args_, shape_, plan_) {
    for (int32_t i = 0; i < pool_.num_threads(); ++i)
      new (workspace_.Prefetcher(i)) AttentionPrefetcher();
  }

  void Run() {
    const bool few = tiles_.size() < pool_.num_threads() * kFewTilesPerThread;
    if (few && pool_.num_threads() > 1 && plan_.longest_context > kAttentionSplit) {
      RunShared(static_cast<int32_t>(tiles_.size()));
      return;
    }
    shared_splits_ = SharedSplits();
    if (shared_splits_ > 0) {
      pool_.ParallelFor(tiles_.NumSharedTiles(), /*grain=*/1,
                        [this](int64_t begin, int64_t end, int worker) {
                          for (int64_t i = begin; i < end; ++i) RunSharedTile(i, worker);
                        });
      tiles_.StartAt(shared_splits_);
    }
    pool_.ParallelFor(tiles_.size(), /*grain=*/1, [this](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) RunTile(i, worker);
    });
  }

 private:
  // Computes the splits of a tile in order, after the shared ones.
  void RunTile(int64_t index, int worker) const {
    const AttentionTile tile = tiles_.Tile(index);
    const AttentionState total = workspace_.State(2 * worker);
    const AttentionState next = workspace_.State(2 * worker + 1);
    bool first = shared_splits_ == 0;
    if (!first) CopyShared(index, tile, total);
    AttentionScratch scratch = workspace_.Scratch(worker);
    kernel_.load_queries(shape_, tile, scratch);
    const AttentionRange splits = tiles_.Splits(tile);
    for (int32_t split = splits.first; split < splits.last; ++split) {
      scratch.prefetch = PrefetchFor(index, tile, split, worker);
      kernel_.attend(shape_, tile, scratch, split * kAttentionSplit, first ? total : next);
      if (!first) kernel_.merge(shape_, tile.rows, total, next);
      first = false;
    }
    kernel_.finish(shape_, tile, total);
  }

  // The groups to prefetch during a split; null if the kernel or the tile does not prefetch.
  const AttentionPrefetch* PrefetchFor(int64_t index, const AttentionTile& tile, int32_t split,
                                       int worker) const {
    if (!kernel_.prefetches || tile.rows > kAttentionPrefetchRows) return nullptr;
    return workspace_.Prefetcher(worker)->GroupsFor(tiles_, index, split);
  }

  void RunSharedTile(int64_t index, int worker) const {
    const AttentionTile tile = tiles_.SharedTile(index, shared_splits_);
    const AttentionScratch scratch = workspace_.Scratch(worker);
    const AttentionState total = workspace_.SharedState(index);
    const AttentionState next = workspace_.State(2 * worker + 1);
    kernel_.load_queries(shape_, tile, scratch);
    for (int32_t split = 0; split < shared_splits_; ++split) {
      kernel_.attend(shape_, tile, scratch, split * kAttentionSplit, split == 0 ? total : next);
      if (split > 0) kernel_.merge(shape_, tile.rows, total, next);
    }
  }

  // Number of splits that are the same for all rows and computed together; 0 if requests have
  // enough rows of their own to fill tiles.
  int32_t SharedSplits() const {
    const BatchView& batch = *args_.batch;
    const int64_t rows = int64_t{batch.num_tokens} * shape_.group;
    if (batch.num_requests < 2 || batch.num_tokens > AttentionSizes::kMaxSharingTokens) return 0;
    if (rows >= int64_t{batch.num_requests} * kAttentionTileRows / 2) return 0;
    if (!shape_.causal || shape_.window > 0) return 0;
    if (shape_.encoder_keys || shape_.decoder_keys) return 0;
    const bool by_position = shape_.slopes != nullptr || shape_.biases.AreThere();
    if (by_position || shape_.grows_from > 0) return 0;  // rows of a shared tile have none
    return static_cast<int32_t>(int64_t{batch.num_common_blocks} * batch.block_size /
                                kAttentionSplit);
  }

  // The state of tile `index` after the shared splits.
  void CopyShared(int64_t index, const AttentionTile& tile, const AttentionState& total) const {
    const int64_t first =
        int64_t{args_.batch->query_start[tiles_.Request(index)]} * shape_.group + tile.first_row;
    for (int64_t row = 0; row < tile.rows; ++row) {
      const int64_t source = (first + row) % kAttentionTileRows;
      const AttentionState from = workspace_.SharedState(
          (first + row) / kAttentionTileRows * shape_.kv_heads + tile.kv_head);
      std::copy_n(from.acc + source * shape_.padded_dim, shape_.padded_dim,
                  total.acc + row * shape_.padded_dim);
      std::copy_n(from.sum + source * kAttentionKeyGroup, kAttentionKeyGroup,
                  total.sum + row * kAttentionKeyGroup);
      total.max[row] = from.max[source];
    }
  }

  // In a wave, tile t computes its splits [done, done + count) in states of `rows` rows from t *
  // count on.
  struct Wave {
    int32_t done = 0;
    int32_t count = 0;
    int64_t rows = 0;
  };

  // Few tiles: threads divide the splits in waves that fit into the workspace, whose first states
  // hold splits, followed by the tiles' totals.
  void RunShared(int32_t tiles) {
    Wave wave;
    int32_t most_splits = 0;
    for (int32_t t = 0; t < tiles; ++t) {
      const AttentionTile tile = tiles_.Tile(t);
      most_splits = std::max(most_splits, tiles_.Splits(tile).size());
      wave.rows = std::max<int64_t>(wave.rows, tile.rows);
    }
    const int32_t most = static_cast<int32_t>(workspace_.NumStates(wave.rows) / tiles - 1);
    for (; wave.done < most_splits; wave.done += wave.count) {
      wave.count = std::min(most, most_splits - wave.done);
      const int64_t units = static_cast<int64_t>(tiles) * wave.count;
      pool_.ParallelFor(units, /*grain=*/1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t u = begin; u < end; ++u) AttendSplit(wave, u, worker);
      });
      pool_.ParallelFor(tiles, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) MergeWave(wave, t, most * tiles + t);
      });
    }
  }

  // Computes unit `unit` of the wave into the state with that index.
  void AttendSplit(const Wave& wave, int64_t unit, int worker) const {
    const int64_t index = unit / wave.count;
    const AttentionTile tile = tiles_.Tile(index);
    const AttentionRange splits = tiles_.Splits(tile);
    const int32_t split = splits.first + wave.done + static_cast<int32_t>(unit % wave.count);
    if (split >= splits.last) return;
    AttentionScratch scratch = workspace_.Scratch(worker);
    scratch.prefetch = PrefetchFor(index, tile, split, worker);
    kernel_.load_queries(shape_, tile, scratch);
    kernel_.attend(shape_, tile, scratch, split * kAttentionSplit,
                   workspace_.State(unit, wave.rows));
  }

  // Merges the wave's splits of tile t.
  void MergeWave(const Wave& wave, int64_t t, int64_t total_slot) const {
    const AttentionTile tile = tiles_.Tile(t);
    const int32_t splits = tiles_.Splits(tile).size();
    const AttentionState total = workspace_.State(total_slot, wave.rows);
    if (wave.done == 0) std::fill_n(total.max, tile.rows, -__builtin_inff());
    for (int32_t i = 0; i < wave.count && wave.done + i < splits; ++i) {
      kernel_.merge(shape_, tile.rows, total, workspace_.State(t * wave.count + i, wave.rows));
    }
    if (wave.done < splits && splits <= wave.done + wave.count) {
      kernel_.finish(shape_, tile, total);
    }
  }

  const AttentionKernel& kernel_;
  const PagedAttentionArgs& args_;
  const AttentionShape shape_;
  device::ThreadPool& pool_;
  const AttentionWorkspace workspace_;
  const AttentionPlan& plan_;
  AttentionTileList tiles_;
  int32_t shared_splits_ = 0;  // of all requests, computed before the tiles
};

}  // namespace

void RunAttention(const AttentionKernels& kernels, const OpCall& call, KernelContext& context) {
  const PagedAttentionArgs args = ToPagedAttentionArgs(call);
  if (args.batch->num_requests == 0) return;
  Driver(kernels, args, context).Run();
}

namespace {

int64_t PlanBytes(const OpCall& call) {
  const AttentionSizes sizes = AttentionSizes::Of(ToPagedAttentionArgs(call), /*num_threads=*/1);
  return AttentionPlan::Bytes(sizes.tokens, sizes.group, sizes.kv_heads);
}

void MakePlan(const OpCall& call, std::span<std::byte> plan) {
  const PagedAttentionArgs args = ToPagedAttentionArgs(call);
  PlanAttention(args, MakeShape(args), new (plan.data()) AttentionPlan);
}

}  // namespace

constinit const BatchPlan kAttentionPlan = {.bytes = PlanBytes, .make = MakePlan};

int64_t AttentionWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return AttentionWorkspace::Bytes(AttentionSizes::Of(ToPagedAttentionArgs(call), num_threads));
}

}  // namespace pagemill::ops
