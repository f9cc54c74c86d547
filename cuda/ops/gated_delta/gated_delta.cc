#include "cc/ops/gated_delta/gated_delta.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gated_delta/gated_delta.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/states/softplus.h"
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
  int64_t q, k, v;
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
  const int padded = (args.keys + 15) / 16 * 16;
  const int columns = static_cast<int>(BlockSize().x) / kStateLanes;
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

// A block for columns of a head's state of a request. `begin`: of the first head; `of_group`: what
// each further group of heads adds.
template <typename T, int kQuads>
PAGEMILL_KERNEL DeltaHead(Operands<T> args, HeadOffsets begin, HeadOffsets of_group, int heads,
                          int groups, StateBatch batch) {
  PAGEMILL_SHARED(Chunk, chunk);
  const int tiles = static_cast<int>(GridSize().x) / heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles, group = head / (heads / groups);
  const HeadOffsets head_at = {
      begin.q + group * of_group.q, begin.k + group * of_group.k,
      begin.v + group * of_group.v + head % (heads / groups) * int64_t{args.values}};
  StateTile<kQuads> tile(args.keys, args.values, static_cast<int>(BlockIndex().x) % tiles);
  const int64_t matrix = int64_t{head} * args.keys * args.values;
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : args.states[run.source] + matrix);
    for (int32_t first = run.begin; first < run.end; first += kTokens) {
      const int tokens = run.end - first < kTokens ? run.end - first : kTokens;
      SyncBlock();  // the chunk before has been read
      LoadChunk(args, head_at, head, first, tokens, tile, chunk);
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
  const int64_t next = args.heads / args.groups % args.heads;  // the first head of the next group
  const HeadOffsets begin = {args.QOffset(0), args.KOffset(0), args.VOffset(0)};
  const HeadOffsets of_group = {args.QOffset(next) - begin.q, args.KOffset(next) - begin.k,
                                args.VOffset(next) - begin.v};
  const StateTileSizes tiles = TilesOf(args.values);
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
    Launch(*context.stream, shape, args.keys <= 128 ? DeltaHead<T, 8> : DeltaHead<T, 16>, operands,
           begin, of_group, args.heads, args.groups, StateBatchOf(*args.batch));
  });
}

constexpr ops::Kernel kKernels[] = {{"gated_delta", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> GatedDeltaKernels() { return kKernels; }

}  // namespace pagemill::gpu
