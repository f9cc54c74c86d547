#include "cc/ops/state_space_scan/state_space_scan.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_tile.h"

namespace pagemill::gpu {
namespace {

constexpr int kTokens = 8;  // whose operands are in shared memory together

struct Sizes {
  int heads, states, head_dim, groups;
};

// What the tokens of a chunk have for one head.
struct Chunk {
  StateQuad b[kTokens][kMaxStateRows / 4];
  StateQuad c[kTokens][kMaxStateRows / 4];
  float x[kTokens][kMaxStateColumns];
  float step[kTokens], decay[kTokens];
};

// Tokens [first, first + tokens), by the whole block.
template <typename T, typename Tile>
PAGEMILL_DEVICE void LoadChunk(Rows<const T> xbc, Rows<const T> dt, float rate, float dt_bias,
                               const Sizes& sizes, int head, int32_t first, int tokens,
                               const Tile& tile, Chunk& chunk) {
  const int thread = static_cast<int>(ThreadIndex().x), threads = static_cast<int>(BlockSize().x);
  const int64_t width = int64_t{sizes.heads} * sizes.head_dim;
  const int64_t b = width + head / (sizes.heads / sizes.groups) * int64_t{sizes.states};
  const int64_t c = b + int64_t{sizes.groups} * sizes.states;
  const int padded = PaddedRows(sizes.states, Tile::kNumLanes);
  for (int i = thread; i < tokens * padded; i += threads) {
    const int t = i / padded, n = i % padded;
    const T* const row = xbc[first + t];
    const bool exists = n < sizes.states;
    chunk.b[t][n / 4].values[n % 4] = exists ? ToFloat(row[b + n]) : 0;
    chunk.c[t][n / 4].values[n % 4] = exists ? ToFloat(row[c + n]) : 0;
  }
  const int columns = threads / Tile::kNumLanes;
  const int first_column = tile.column() - tile.column_in_block();
  for (int i = thread; i < tokens * columns; i += threads) {
    const int t = i / columns, p = first_column + i % columns;
    chunk.x[t][i % columns] =
        p < sizes.head_dim ? ToFloat(xbc[first + t][head * int64_t{sizes.head_dim} + p]) : 0;
  }
  if (thread >= tokens) return;
  const float step = Softplus(ToFloat(dt[first + thread][head]) + dt_bias);
  chunk.step[thread] = step;
  chunk.decay[thread] = Exp(step * rate);
}

// A block for columns of a head's state of a request.
template <typename T, int kLanes>
PAGEMILL_KERNEL_OF(kMaxTileThreads, 2)
ScanHead(Rows<const T> xbc, Rows<const T> dt, const float* a_log, const float* d,
         const float* dt_bias, Rows<float> states, Rows<T> y, Sizes sizes, StepTokens batch) {
  PAGEMILL_SHARED(Chunk, chunk);
  const int tiles = static_cast<int>(GridSize().x) / sizes.heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  StateTile<kLanes> tile(sizes.states, sizes.head_dim, static_cast<int>(BlockIndex().x) % tiles);
  const int64_t matrix = int64_t{head} * sizes.states * sizes.head_dim;
  const float rate = -Exp(a_log[head]);
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : states[run.source] + matrix);
    for (int32_t first = run.begin; first < run.end; first += kTokens) {
      const int tokens = run.end - first < kTokens ? run.end - first : kTokens;
      SyncBlock();  // the chunk before has been read
      LoadChunk(xbc, dt, rate, dt_bias[head], sizes, head, first, tokens, tile, chunk);
      SyncBlock();
      for (int t = 0; t < tokens; ++t) {
        const float x = chunk.x[t][tile.column_in_block()];
        const float decay = chunk.decay[t], added = chunk.step[t] * x;
        float sum = 0;
        tile.ForEachQuad([&](float* h, int quad) {
          const StateQuad b = chunk.b[t][quad], c = chunk.c[t][quad];
          for (int i = 0; i < 4; ++i) {
            h[i] = decay * h[i] + added * b.values[i];
            sum += h[i] * c.values[i];
          }
        });
        sum = tile.ColumnSum(sum) + d[head] * x;
        if (!tile.is_first()) continue;
        y[first + t][head * int64_t{sizes.head_dim} + tile.column()] = FromFloat<T>(sum);
      }
    }
    if (run.target != ops::kNullPage) tile.Store(states[run.target] + matrix);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToStateSpaceScanArgs(call).states <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::StateSpaceScanArgs args = ops::ToStateSpaceScanArgs(call);
  const Sizes sizes = {static_cast<int>(args.heads), static_cast<int>(args.states),
                       static_cast<int>(args.head_dim), static_cast<int>(args.groups)};
  const StateTileSizes tiles = TilesOf(args.states, args.head_dim);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.heads) * tiles.blocks,
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {tiles.threads}};
  WithActType(args.xbc.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, tiles.lanes == 4 ? ScanHead<T, 4> : ScanHead<T, 8>,
           RowsOf<const T>(args.xbc), RowsOf<const T>(args.dt), args.a_log.Data<const float>(),
           args.d.Data<const float>(), args.dt_bias.Data<const float>(), RowsOf<float>(args.state),
           RowsOf<T>(args.y), sizes, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"state_space_scan", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> StateSpaceScanKernels() { return kKernels; }

}  // namespace pagemill::gpu
