#include "cc/ops/gated_delta/gated_delta.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_tile.h"

namespace pagemill::gpu {
namespace {

constexpr int kTokens = 8;  // whose operands are in shared memory together

// What all heads have in common.
template <typename T>
struct Operands {
  const T* data;  // qkv
  int64_t stride;
  Rows<const T> a, b;
  const float* a_log;
  const float* dt_bias;
  Rows<float> states;
  Rows<T> y;
  int keys, values, rates;
  float share_scale;
};

// Offsets in a row of qkv.
struct HeadOffsets {
  int q, k, v;
};

// What the tokens of a chunk have for one head.
struct Chunk {
  StateQuad q[kTokens][kMaxStateRows / 4];
  StateQuad k[kTokens][kMaxStateRows / 4];
  StateQuad decay[kTokens][kMaxStateRows / 4];
  float v[kTokens][kMaxStateColumns];
  float share[kTokens];
};

// x times `scale` divided by its norm, and zeros up to `padded` elements; by a warp.
template <typename T>
PAGEMILL_DEVICE void Normalize(const T* x, float scale, int size, int padded, StateQuad* y) {
  float squares = 0;
  for (int i = Lane(); i < size; i += WarpLanes()) squares += ToFloat(x[i]) * ToFloat(x[i]);
  const float factor = scale * InverseSqrt(WarpSum(squares) + ops::kDeltaNormEps);
  for (int i = Lane(); i < padded; i += WarpLanes()) {
    y[i / 4].values[i % 4] = i < size ? ToFloat(x[i]) * factor : 0;
  }
}

// Tokens [first, first + tokens), by the whole block: a warp for each token.
template <typename T, typename Tile>
PAGEMILL_DEVICE void LoadChunk(const Operands<T>& args, const HeadOffsets& head_at, int head,
                               int32_t first, int tokens, const Tile& tile, Chunk& chunk) {
  const int warps = static_cast<int>(BlockSize().x) / WarpLanes();
  const int padded = PaddedRows(args.keys, Tile::kNumLanes);
  const int columns = static_cast<int>(BlockSize().x) / Tile::kNumLanes;
  const int first_column = tile.column() - tile.column_in_block();
  const float rate = -Exp(args.a_log[head]);
  for (int t = Warp(); t < tokens; t += warps) {
    const T* const row = args.data + (first + t) * args.stride;
    Normalize(row + head_at.q, InverseSqrt(static_cast<float>(args.keys)), args.keys, padded,
              chunk.q[t]);
    Normalize(row + head_at.k, 1, args.keys, padded, chunk.k[t]);
    for (int i = Lane(); i < padded; i += WarpLanes()) {
      const int64_t at = int64_t{head} * args.rates + (args.rates == 1 || i >= args.keys ? 0 : i);
      const float raw = ToFloat(args.a[first + t][at]) + args.dt_bias[at];
      chunk.decay[t][i / 4].values[i % 4] = Exp(rate * Softplus(raw));
    }
    for (int i = Lane(); i < columns; i += WarpLanes()) {
      const int column = first_column + i;
      chunk.v[t][i] = column < args.values ? ToFloat(row[head_at.v + column]) : 0;
    }
    if (Lane() == 0) {
      chunk.share[t] = args.share_scale / (1 + Exp(-ToFloat(args.b[first + t][head])));
    }
  }
}

// Offsets of heads come in parts of `size` heads: `first` is that of the first head, each further
// head of a part adds `of_head`, each further part `of_part`.
struct HeadParts {
  HeadOffsets first, of_head, of_part;
  int size;

  PAGEMILL_DEVICE HeadOffsets At(int head) const {
    const int part = head / size, i = head % size;
    return {first.q + part * of_part.q + i * of_head.q, first.k + part * of_part.k + i * of_head.k,
            first.v + part * of_part.v + i * of_head.v};
  }
};

// A block for columns of a head's state of a request.
template <typename T, int kLanes>
PAGEMILL_KERNEL_OF(kMaxTileThreads, 2)
DeltaHead(Operands<T> args, HeadParts parts, int heads, StepTokens batch) {
  PAGEMILL_SHARED(Chunk, chunk);
  const int tiles = static_cast<int>(GridSize().x) / heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  StateTile<kLanes> tile(args.keys, args.values, static_cast<int>(BlockIndex().x) % tiles);
  const int matrix = head * args.keys * args.values;
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : args.states[run.source] + matrix);
    for (int32_t first = run.begin; first < run.end; first += kTokens) {
      const int tokens = run.end - first < kTokens ? run.end - first : kTokens;
      SyncBlock();  // the chunk before has been read
      LoadChunk(args, parts.At(head), head, first, tokens, tile, chunk);
      SyncBlock();
      for (int t = 0; t < tokens; ++t) {
        float predicted = 0;
        tile.ForEachQuad([&](float* state, int quad) {
          const StateQuad decay = chunk.decay[t][quad], k = chunk.k[t][quad];
          for (int i = 0; i < 4; ++i) {
            state[i] *= decay.values[i];
            predicted += state[i] * k.values[i];
          }
        });
        const float v = chunk.v[t][tile.column_in_block()];
        const float change = chunk.share[t] * (v - tile.ColumnSum(predicted));
        float sum = 0;
        tile.ForEachQuad([&](float* state, int quad) {
          const StateQuad q = chunk.q[t][quad], k = chunk.k[t][quad];
          for (int i = 0; i < 4; ++i) {
            state[i] += k.values[i] * change;
            sum += state[i] * q.values[i];
          }
        });
        sum = tile.ColumnSum(sum);
        if (!tile.is_first()) continue;
        args.y[first + t][int64_t{head} * args.values + tile.column()] = FromFloat<T>(sum);
      }
    }
    if (run.target != ops::kNullPage) tile.Store(args.states[run.target] + matrix);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToGatedDeltaArgs(call).keys <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedDeltaArgs args = ops::ToGatedDeltaArgs(call);
  // Heads of a group, or of one turn over all groups.
  const int64_t part = args.in_turn ? args.groups : args.heads / args.groups;
  const auto offsets_of = [&](int64_t head) -> HeadOffsets {
    return {static_cast<int>(args.QOffset(head)), static_cast<int>(args.KOffset(head)),
            static_cast<int>(args.VOffset(head))};
  };
  const HeadOffsets first = offsets_of(0);
  const auto from_first = [&](int64_t head) -> HeadOffsets {
    const HeadOffsets other = offsets_of(head % args.heads);
    return {other.q - first.q, other.k - first.k, other.v - first.v};
  };
  const HeadParts parts = {first, from_first(1), from_first(part), static_cast<int>(part)};
  const StateTileSizes tiles = TilesOf(args.keys, args.values);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.heads) * tiles.blocks,
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {tiles.threads}};
  WithActType(args.qkv.dtype, [&]<typename T>(T) {
    const Rows<const T> qkv = RowsOf<const T>(args.qkv);
    const Operands<T> operands = {.data = qkv.data,
                                  .stride = qkv.stride,
                                  .a = RowsOf<const T>(args.a),
                                  .b = RowsOf<const T>(args.b),
                                  .a_log = args.a_log.Data<const float>(),
                                  .dt_bias = args.dt_bias.Data<const float>(),
                                  .states = RowsOf<float>(args.state),
                                  .y = RowsOf<T>(args.y),
                                  .keys = static_cast<int>(args.keys),
                                  .values = static_cast<int>(args.values),
                                  .rates = static_cast<int>(args.rates),
                                  .share_scale = args.share_scale};
    Launch(*context.stream, shape, tiles.lanes == 4 ? DeltaHead<T, 4> : DeltaHead<T, 8>, operands,
           parts, args.heads, StepTokensOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"gated_delta", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> GatedDeltaKernels() { return kKernels; }

}  // namespace pagemill::gpu
