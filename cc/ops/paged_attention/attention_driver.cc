#include "cc/ops/paged_attention/attention_driver.h"

#include <algorithm>

namespace pagemill::ops {
namespace {

// With fewer tiles a thread than this their splits are shared out, too.
constexpr int64_t kFewTilesPerThread = 4;
// Splits of one wave, per thread: enough to share evenly.
constexpr int64_t kWaveSplitsPerThread = 8;

// Batches of more tokens do not share a common prefix; it bounds the workspace.
constexpr int64_t kMostSharingTokens = 256;

// Rows of one request that make a tile with each KV head.
struct TileRows {
  int32_t request;
  int32_t first_row;
  int64_t cost;
};

// [first, last): the splits that hold keys which some row of the tile sees.
struct SplitRange {
  int32_t first;
  int32_t last;
  int32_t size() const { return last - first; }
};

int64_t Padded(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }
int64_t StateFloats(int64_t padded_dim) {
  return kAttentionTileRows * (padded_dim + kAttentionKeyGroup) + 64;  // max: 48, rounded up
}
int64_t ScratchFloats(int64_t padded_dim) {
  return kAttentionTileRows * (padded_dim + kAttentionSplit / 2) + kAttentionScoreFloats +
         kAttentionSplit * padded_dim;
}

// How large a call is.
struct Sizes {
  int64_t padded_dim = 0;
  int64_t num_threads = 0;
  int64_t tokens = 0;
  int64_t group = 0;
  int64_t kv_heads = 0;

  // Tiles of all tokens' rows, which compute the common prefix together.
  int64_t SharedTiles() const {
    const int64_t rows = std::min(tokens, kMostSharingTokens) * group;
    return (rows + kAttentionTileRows - 1) / kAttentionTileRows * kv_heads;
  }
  // Rows of requests cut into tiles, each request by itself.
  int64_t MostTileRows() const {
    return tokens * group * kv_heads / kAttentionTileRows + tokens + 1;
  }
};

Sizes SizesOf(const PagedAttentionArgs& args, int32_t num_threads) {
  return {.padded_dim = Padded(args.q.shape[2]),
          .num_threads = num_threads,
          .tokens = args.q.shape[0],
          .group = args.q.shape[1] / args.kv_heads,
          .kv_heads = args.kv_heads};
}

// Carves the workspace: states, per-thread scratch, then the list of tiles.
class Workspace {
 public:
  Workspace(std::byte* base, const Sizes& sizes)
      : base_(reinterpret_cast<float*>(base)),
        sizes_(sizes),
        padded_dim_(sizes.padded_dim),
        threads_(sizes.num_threads) {}

  // Of the splits of a wave, and of the tiles that waves belong to; or two per thread.
  static int64_t NumStates(int64_t num_threads) {
    return num_threads * (kWaveSplitsPerThread + kFewTilesPerThread);
  }
  static int64_t Bytes(const Sizes& sizes) {
    const int64_t states = NumStates(sizes.num_threads) + sizes.SharedTiles();
    const int64_t floats = states * StateFloats(sizes.padded_dim) +
                           sizes.num_threads * ScratchFloats(sizes.padded_dim);
    return floats * static_cast<int64_t>(sizeof(float)) +
           sizes.MostTileRows() * static_cast<int64_t>(sizeof(TileRows));
  }

  AttentionState State(int64_t index) const {
    float* acc = base_ + index * StateFloats(padded_dim_);
    float* sum = acc + kAttentionTileRows * padded_dim_;
    return {.acc = acc, .sum = sum, .max = sum + kAttentionTileRows * kAttentionKeyGroup};
  }
  AttentionState SharedState(int64_t tile) const { return State(NumStates(threads_) + tile); }
  AttentionScratch Scratch(int64_t worker) const {
    float* q = SharedState(sizes_.SharedTiles()).acc + worker * ScratchFloats(padded_dim_);
    float* scores = q + kAttentionTileRows * padded_dim_;
    float* weights = scores + kAttentionScoreFloats;
    return {
        .q = q,
        .scores = scores,
        .weights = reinterpret_cast<uint16_t*>(weights),
        .pages = reinterpret_cast<uint16_t*>(weights + kAttentionTileRows * kAttentionSplit / 2)};
  }
  TileRows* Tiles() const { return reinterpret_cast<TileRows*>(Scratch(threads_).q); }

 private:
  float* base_;
  Sizes sizes_;
  int64_t padded_dim_;
  int64_t threads_;
};

AttentionShape MakeShape(const PagedAttentionArgs& args) {
  constexpr float kLog2E = 1.44269504f;
  AttentionShape shape;
  shape.head_dim = static_cast<int32_t>(args.q.shape[2]);
  shape.padded_dim = static_cast<int32_t>(Padded(shape.head_dim));
  shape.kv_heads = args.kv_heads;
  shape.group = static_cast<int32_t>(args.q.shape[1]) / args.kv_heads;
  shape.block_size = args.batch->block_size;
  shape.window = args.window;
  shape.causal = args.causal;
  const bool capped = args.soft_cap > 0;
  shape.query_scale = capped ? args.scale / args.soft_cap : args.scale * kLog2E;
  shape.soft_cap = args.soft_cap * kLog2E;
  shape.sinks = args.sinks;
  shape.slopes = args.slopes;
  shape.cache = args.cache.data;
  shape.block_stride_bytes = args.cache.row_stride_bytes;
  return shape;
}

const AttentionKernel& KernelFor(const AttentionKernels& kernels, DType cache) {
  if (cache == DType::kF32) return kernels.f32;
  if (cache == DType::kBF16) return kernels.bf16;
  return cache == DType::kF8E4M3 ? kernels.f8 : kernels.int8;
}

class Driver {
 public:
  Driver(const AttentionKernels& kernels, const PagedAttentionArgs& args, KernelContext& context)
      : kernel_(KernelFor(kernels, args.cache.dtype)),
        args_(args),
        shape_(MakeShape(args)),
        pool_(*context.pool),
        sizes_(SizesOf(args, context.pool->num_threads())),
        workspace_(context.workspace.data(), sizes_) {}

  void Run() {
    ListTiles();
    const int64_t tiles = num_tile_rows_ * shape_.kv_heads;
    const bool few = tiles < pool_.num_threads() * kFewTilesPerThread;
    if (few && pool_.num_threads() > 1 && LongestContext() > kAttentionSplit) {
      RunShared(static_cast<int32_t>(tiles));
      return;
    }
    shared_splits_ = SharedSplits();
    if (shared_splits_ > 0) {
      pool_.ParallelFor(NumSharedTiles(), /*grain=*/1,
                        [this](int64_t begin, int64_t end, int worker) {
                          for (int64_t i = begin; i < end; ++i) {
                            RunSplits(SharedTile(i), {.first = 0, .last = shared_splits_},
                                      /*goes_on=*/false, worker, workspace_.SharedState(i));
                          }
                        });
    }
    pool_.ParallelFor(tiles, /*grain=*/1, [this](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) RunTile(i, worker);
    });
  }

 private:
  // The costliest first, so that threads end together.
  void ListTiles() {
    const BatchView& batch = *args_.batch;
    TileRows* tiles = workspace_.Tiles();
    for (int32_t request = 0; request < batch.num_requests; ++request) {
      const int32_t rows = Rows(request);
      const int32_t count = (rows + kAttentionTileRows - 1) / kAttentionTileRows;
      for (int32_t i = count - 1; i >= 0; --i) {
        tiles[num_tile_rows_++] = {.request = request,
                                   .first_row = i * kAttentionTileRows,
                                   .cost = Cost(request, i * kAttentionTileRows)};
      }
    }
    std::sort(tiles, tiles + num_tile_rows_, [](const TileRows& a, const TileRows& b) {
      if (a.cost != b.cost) return a.cost > b.cost;
      return a.request != b.request ? a.request < b.request : a.first_row > b.first_row;
    });
  }

  // Multiplications, and the reading of keys and values, which costs about as much as 6 rows.
  int64_t Cost(int32_t request, int32_t first_row) const {
    constexpr int32_t kReadingRows = 6;
    const AttentionTile tile = TileOf({request, first_row, 0}, /*kv_head=*/0);
    return static_cast<int64_t>(Splits(tile).size()) * (tile.rows + kReadingRows);
  }

  int32_t Rows(int32_t request) const {
    const int32_t* start = args_.batch->query_start + request;
    return (start[1] - start[0]) * shape_.group;
  }

  int32_t LongestContext() const {
    const int32_t* lens = args_.batch->seq_lens;
    return *std::max_element(lens, lens + args_.batch->num_requests);
  }

  // KV heads of the same rows follow one another.
  AttentionTile Tile(int64_t index) const {
    return TileOf(workspace_.Tiles()[index / shape_.kv_heads],
                  static_cast<int32_t>(index % shape_.kv_heads));
  }

  AttentionTile TileOf(const TileRows& rows, int32_t kv_head) const {
    const BatchView& batch = *args_.batch;
    const int32_t first_token = batch.query_start[rows.request];
    AttentionTile tile;
    tile.kv_head = kv_head;
    PointTo(first_token, &tile);
    tile.block_table = batch.block_table + rows.request * batch.block_table_stride;
    tile.first_row = rows.first_row;
    tile.rows = std::min(kAttentionTileRows, Rows(rows.request) - rows.first_row);
    tile.seq_len = batch.seq_lens[rows.request];
    tile.first_position = tile.seq_len - (batch.query_start[rows.request + 1] - first_token);
    return tile;
  }

  void PointTo(int64_t token, AttentionTile* tile) const {
    const int64_t offset = static_cast<int64_t>(tile->kv_head) * shape_.group * shape_.head_dim;
    tile->q = args_.q.Row<float>(token) + offset;
    tile->y = args_.y.Row<float>(token) + offset;
    tile->q_stride = args_.q.row_stride_bytes / static_cast<int64_t>(sizeof(float));
    tile->y_stride = args_.y.row_stride_bytes / static_cast<int64_t>(sizeof(float));
  }

  SplitRange Splits(const AttentionTile& tile) const {
    const int32_t first_position = tile.first_position + tile.first_row / shape_.group;
    const int32_t last_position =
        tile.first_position + (tile.first_row + tile.rows - 1) / shape_.group;
    const int32_t low = shape_.window > 0 ? std::max(0, first_position + 1 - shape_.window) : 0;
    const int32_t high = shape_.causal ? last_position + 1 : tile.seq_len;
    return {.first = low / kAttentionSplit, .last = (high + kAttentionSplit - 1) / kAttentionSplit};
  }

  void RunTile(int64_t index, int worker) const {
    const AttentionTile tile = Tile(index);
    const AttentionState total = workspace_.State(2 * worker);
    SplitRange splits = Splits(tile);
    if (shared_splits_ > 0) {
      CopyShared(index, tile, total);
      splits.first = shared_splits_;
    }
    RunSplits(tile, splits, /*goes_on=*/shared_splits_ > 0, worker, total);
    kernel_.finish(shape_, tile, total);
  }

  // Split after split into `total`; `goes_on`: which holds those before the first.
  void RunSplits(const AttentionTile& tile, SplitRange splits, bool goes_on, int worker,
                 const AttentionState& total) const {
    const AttentionScratch scratch = workspace_.Scratch(worker);
    const AttentionState next = workspace_.State(2 * worker + 1);
    kernel_.load_queries(shape_, tile, scratch);
    for (int32_t split = splits.first; split < splits.last; ++split) {
      const bool first = split == splits.first && !goes_on;
      kernel_.attend(shape_, tile, scratch, split * kAttentionSplit, first ? total : next);
      if (!first) kernel_.merge(shape_, tile.rows, total, next);
    }
  }

  // How many splits are the same for all rows and worth computing together: where a request's own
  // rows fill a tile there is nothing to gain.
  int32_t SharedSplits() const {
    const BatchView& batch = *args_.batch;
    const int64_t rows = int64_t{batch.num_tokens} * shape_.group;
    if (batch.num_requests < 2 || batch.num_tokens > kMostSharingTokens) return 0;
    if (rows >= int64_t{batch.num_requests} * kAttentionTileRows / 2) return 0;
    if (!shape_.causal || shape_.window > 0 || shape_.slopes != nullptr) return 0;
    return static_cast<int32_t>(int64_t{batch.num_common_blocks} * batch.block_size /
                                kAttentionSplit);
  }

  int64_t NumSharedTiles() const {
    const int64_t rows = int64_t{args_.batch->num_tokens} * shape_.group;
    return (rows + kAttentionTileRows - 1) / kAttentionTileRows * shape_.kv_heads;
  }

  // Rows of all requests, whose tokens follow one another, as if they were one request's that is
  // past the shared splits.
  AttentionTile SharedTile(int64_t index) const {
    AttentionTile tile;
    tile.kv_head = static_cast<int32_t>(index % shape_.kv_heads);
    tile.first_row = static_cast<int32_t>(index / shape_.kv_heads) * kAttentionTileRows;
    tile.rows =
        std::min(kAttentionTileRows, args_.batch->num_tokens * shape_.group - tile.first_row);
    PointTo(/*token=*/0, &tile);
    tile.block_table = args_.batch->block_table;
    tile.first_position = shared_splits_ * kAttentionSplit - 1;
    tile.seq_len = shared_splits_ * kAttentionSplit;
    return tile;
  }

  // The state of tile `index` after the shared splits.
  void CopyShared(int64_t index, const AttentionTile& tile, const AttentionState& total) const {
    const int32_t request = workspace_.Tiles()[index / shape_.kv_heads].request;
    const int64_t first =
        int64_t{args_.batch->query_start[request]} * shape_.group + tile.first_row;
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

  // Fewer tiles than states for them: tile t's total is the state after those of the wave.
  void RunShared(int32_t tiles) {
    const int64_t wave = pool_.num_threads() * kWaveSplitsPerThread;
    const int32_t splits_per_wave = static_cast<int32_t>(std::max<int64_t>(1, wave / tiles));
    int32_t most_splits = 0;
    for (int32_t t = 0; t < tiles; ++t) most_splits = std::max(most_splits, Splits(Tile(t)).size());
    for (int32_t done = 0; done < most_splits; done += splits_per_wave) {
      const int32_t count = std::min(splits_per_wave, most_splits - done);
      const int64_t units = static_cast<int64_t>(tiles) * count;
      pool_.ParallelFor(units, /*grain=*/1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t u = begin; u < end; ++u) {
          AttendSplit(Tile(u / count), done + static_cast<int32_t>(u % count), u, worker);
        }
      });
      pool_.ParallelFor(tiles, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) MergeWave(t, done, count, wave + t);
      });
    }
  }

  // Split `index` of the tile's own, into state `slot`.
  void AttendSplit(const AttentionTile& tile, int32_t index, int64_t slot, int worker) const {
    const SplitRange splits = Splits(tile);
    if (index >= splits.size()) return;
    const AttentionScratch scratch = workspace_.Scratch(worker);
    kernel_.load_queries(shape_, tile, scratch);
    kernel_.attend(shape_, tile, scratch, (splits.first + index) * kAttentionSplit,
                   workspace_.State(slot));
  }

  // Merges splits [done, done + count) of tile t, which lie in states from t * count.
  void MergeWave(int64_t t, int32_t done, int32_t count, int64_t total_slot) const {
    const AttentionTile tile = Tile(t);
    const int32_t splits = Splits(tile).size();
    const AttentionState total = workspace_.State(total_slot);
    if (done == 0) std::fill_n(total.max, tile.rows, -__builtin_inff());
    for (int32_t i = 0; i < count && done + i < splits; ++i) {
      kernel_.merge(shape_, tile.rows, total, workspace_.State(t * count + i));
    }
    if (done < splits && splits <= done + count) kernel_.finish(shape_, tile, total);
  }

  const AttentionKernel& kernel_;
  const PagedAttentionArgs& args_;
  const AttentionShape shape_;
  device::ThreadPool& pool_;
  const Sizes sizes_;
  const Workspace workspace_;
  int32_t shared_splits_ = 0;  // of all rows, computed before the tiles
  int64_t num_tile_rows_ = 0;
};

}  // namespace

void RunAttention(const AttentionKernels& kernels, const OpCall& call, KernelContext& context) {
  const PagedAttentionArgs args = ToPagedAttentionArgs(call);
  if (args.batch->num_requests == 0) return;
  Driver(kernels, args, context).Run();
}

int64_t AttentionWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return Workspace::Bytes(SizesOf(ToPagedAttentionArgs(call), num_threads));
}

}  // namespace pagemill::ops
