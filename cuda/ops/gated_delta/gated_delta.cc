#include "cc/ops/gated_delta/gated_delta.h"

#include <cstdint>
#include <limits>

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gated_delta/delta_chunks.h"
#include "cuda/ops/gated_delta/delta_operands.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_steps.h"
#include "cuda/ops/states/state_tile.h"
#include "cuda/ops/states/token_chunks.h"

namespace pagemill::gpu {
namespace {

// A team's token, for one head. kPerKey: each key has a decay of its own.
template <typename T, int kRows, bool kPerKey>
struct Fetched {
  HalfTeamVector<T, kRows> qk;  // q in the first half, k in the other
  T a[kPerKey ? kRows / kTeamThreads : 1] = {};
  T v = {}, b = {};
};

// The same as the block uses it.
template <int kRows, bool kPerKey>
struct Token {
  StateQuad q[kRows / 4];
  StateQuad k[kRows / 4];
  StateQuad decay[kPerKey ? kRows / 4 : 1];  // of each key, or the first of all
  float v[StateTile<kRows>::kColumns];
  float share;
};

// One value for all rows.
struct SameForRows {
  float value;
  PAGEMILL_DEVICE float operator[](int) const { return value; }
};

// The operands of a row; `column` is the block's first.
template <typename T, int kRows, bool kPerKey>
PAGEMILL_DEVICE Fetched<T, kRows, kPerKey> Fetch(const DeltaOperands<T>& args,
                                                 const HeadOffsets& head_at, int head, int column,
                                                 int32_t row) {
  Fetched<T, kRows, kPerKey> fetched;
  const T* const qkv = args.data + row * args.stride;
  const T* const a = args.a[row] + int64_t{head} * args.rates;
  const int n = ThreadOfTeam();
  fetched.qk.Load(qkv + (InFirstHalf() ? head_at.q : head_at.k), args.keys, args.has_quads);
  if constexpr (kPerKey) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows / kTeamThreads; ++i) {
      const int key = n + i * kTeamThreads;
      if (key < args.keys) fetched.a[i] = a[key];
    }
  } else {
    fetched.a[0] = a[0];
  }
  const bool has_column = n < StateTile<kRows>::kColumns && column + n < args.values;
  if (has_column) fetched.v = qkv[head_at.v + column + n];
  fetched.b = args.b[row][head];
  return fetched;
}

template <typename T, int kRows, bool kPerKey>
PAGEMILL_DEVICE void Put(const DeltaOperands<T>& args, int head, float rate,
                         const Fetched<T, kRows, kPerKey>& fetched, Token<kRows, kPerKey>& token) {
  const float norm = InverseSqrt(fetched.qk.SumOfSquares() + ops::kDeltaNormEps);
  fetched.qk.Store(InFirstHalf() ? norm * args.q_scale : norm, InFirstHalf() ? token.q : token.k);
  const int n = ThreadOfTeam();
  const float* const dt_bias = args.dt_bias + int64_t{head} * args.rates;
  PAGEMILL_UNROLL
  for (int i = 0; i < (kPerKey ? kRows / kTeamThreads : 1); ++i) {
    const int key = kPerKey ? n + i * kTeamThreads : 0;
    const float bias = key < args.rates ? dt_bias[key] : 0;
    const float decay = Exp(rate * Softplus(ToFloat(fetched.a[i]) + bias));
    if (kPerKey || n == 0) token.decay[key / 4].values[key % 4] = decay;
  }
  if (n < StateTile<kRows>::kColumns) token.v[n] = ToFloat(fetched.v);
  if (n == 0) token.share = args.share_scale / (1 + Exp(-ToFloat(fetched.b)));
}

// Advances the state by a token. Each column's products with q are added to `sums`.
template <typename Tile, typename Token, typename Decay>
PAGEMILL_DEVICE void AdvanceBy(const Decay& decay, Tile& tile, const Token& token,
                               float (&sums)[2]) {
  float predicted[2] = {};
  const StateRows k = tile.RowsOf(token.k);
  tile.ForEachRow([&](float (&h)[2], int r) {
    for (int c = 0; c < 2; ++c) {
      h[c] *= decay[r];
      predicted[c] += h[c] * k[r];
    }
  });
  const float v = token.v[tile.column_in_block()];
  const Vector<float, 2> change = tile.Both(token.share * (v - tile.Sum(predicted)));
  const StateRows q = tile.RowsOf(token.q);
  tile.ForEachRow([&](float (&h)[2], int r) {
    for (int c = 0; c < 2; ++c) {
      h[c] += k[r] * change.values[c];
      sums[c] += h[c] * q[r];
    }
  });
}

template <int kRows, bool kPerKey>
PAGEMILL_DEVICE void Advance(StateTile<kRows>& tile, const Token<kRows, kPerKey>& token,
                             float (&sums)[2]) {
  if constexpr (kPerKey) {
    AdvanceBy(tile.RowsOf(token.decay), tile, token, sums);
  } else {
    AdvanceBy(SameForRows{token.decay[0].values[0]}, tile, token, sums);
  }
}

// A block for columns of a head's state of a request.
template <typename T, int kRows, bool kPerKey>
PAGEMILL_KERNEL_OF(kStateThreads, (kPerKey && kRows > 128 ? 2 : 3))
DeltaHead(DeltaOperands<T> args, HeadParts parts, int heads, int32_t end_tokens, StepTokens batch) {
  const int32_t* const first_row = batch.query_start + BlockIndex().y;
  if (first_row[1] - first_row[0] >= end_tokens) return;
  using Chunks = Token<kRows, kPerKey>[2][kChunkTokens];
  PAGEMILL_SHARED(Chunks, chunks);
  const int tiles = static_cast<int>(GridSize().x) / heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  const int block = static_cast<int>(BlockIndex().x) % tiles;
  StateTile<kRows> tile(args.keys, args.values, block);
  const int matrix = head * args.keys * args.values;
  const HeadOffsets head_at = parts.At(head);
  const float rate = -Exp(args.a_log[head]);
  Fetched<T, kRows, kPerKey> fetched;
  const bool has_columns = tile.HasColumnsOfWarp();
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : args.states[run.source] + matrix);
    float sums[2] = {};  // of a row that is not stored yet
    const auto store = [&](int32_t row) {
      const float sum = tile.Sum(sums);
      sums[0] = sums[1] = 0;
      if (row < run.begin || !tile.is_first()) return;
      args.y[row][int64_t{head} * args.values + tile.column()] = FromFloat<T>(sum);
    };
    ForEachToken(
        run.begin, run.end, has_columns,
        [&](int32_t row) {
          if (row >= run.end) return;
          fetched =
              Fetch<T, kRows, kPerKey>(args, head_at, head, block * tile.kColumns, row);
        },
        [&](int buffer) { Put(args, head, rate, fetched, chunks[buffer][Team()]); },
        [&](int32_t row, int buffer, int t) {
          store(row - 1);  // beside this row's work, for nothing waits for it
          Advance(tile, chunks[buffer][t], sums);
        });
    store(run.end - 1);
    if (run.target != ops::kNullPage) tile.Store(args.states[run.target] + matrix);
  });
}

// A step in which each request has one token.
template <typename T, int kRows, bool kPerKey>
PAGEMILL_KERNEL_OF(kStateThreads, (kPerKey && kRows > 128 ? 2 : 3))
DeltaStep(DeltaOperands<T> args, HeadParts parts, int heads, StepTokens batch) {
  using Tokens = Token<kRows, kPerKey>[kStepHeads];
  PAGEMILL_SHARED(Tokens, tokens);
  ForEachHeadOfStep<kRows>(
      args.states, {.rows = args.keys, .columns = args.values, .heads = heads}, batch,
      [&](int head, int column, int32_t row) {
        const auto fetched = Fetch<T, kRows, kPerKey>(args, parts.At(head), head, column, row);
        Put(args, head, -Exp(args.a_log[head]), fetched, tokens[Team()]);
      },
      [&](StateTile<kRows>& tile, int head, int i, int32_t row) {
        float sums[2] = {};
        Advance(tile, tokens[i], sums);
        const float sum = tile.Sum(sums);
        if (!tile.is_first()) return;
        args.y[row][int64_t{head} * args.values + tile.column()] = FromFloat<T>(sum);
      });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToGatedDeltaArgs(call).keys <= kMaxStateRows;
}

// Computes the requests of fewer than `end_tokens` tokens in the step.
void RunTokens(const ops::GatedDeltaArgs& args, int32_t end_tokens, ops::KernelContext& context) {
  WithActType(args.qkv.dtype, [&]<typename T>(T) {
    const DeltaOperands<T> operands = OperandsOf<T>(args);
    WithStateTiles(
        args.keys, args.values, args.heads, args.batch->num_requests,
        [&]<int kRows>(const LaunchShape& shape) {
          if (HasSingleTokens(*args.batch)) {
            return Launch(*context.stream, ShapeOfStateSteps(shape, args.heads, *context.stream),
                          args.rates > 1 ? DeltaStep<T, kRows, true> : DeltaStep<T, kRows, false>,
                          operands, HeadParts::Of(args), args.heads, StepTokensOf(*args.batch));
          }
          Launch(*context.stream, shape,
                 args.rates > 1 ? DeltaHead<T, kRows, true> : DeltaHead<T, kRows, false>, operands,
                 HeadParts::Of(args), args.heads, end_tokens, StepTokensOf(*args.batch));
        });
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  RunTokens(ops::ToGatedDeltaArgs(call), std::numeric_limits<int32_t>::max(), context);
}

// Which kernels a step launches follows from its sizes, so that it can be replayed; which of them
// computes a request, from the request's tokens.
void RunChunksOrTokens(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedDeltaArgs args = ops::ToGatedDeltaArgs(call);
  // The most that one request can have: each has one, as all of a step that only decodes.
  const int64_t most = args.qkv.shape[0] - (args.batch->num_requests - 1);
  if (most < kFewestChunkTokens) return Run(call, context);
  const bool is_alone = args.batch->num_requests == 1;
  if (!is_alone) RunTokens(args, kFewestChunkTokens, context);
  RunDeltaChunks(args, is_alone ? 0 : kFewestChunkTokens, context);
}

constexpr ops::Kernel kKernels[] = {
    {.op = "gated_delta",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsDeltaChunks,
     .run = RunChunksOrTokens,
     .varies_with_batch = true},  // where chunks begin
    {.op = "gated_delta", .name = "gpu", .priority = 10, .supports = Supports, .run = Run},
};

}  // namespace

std::span<const ops::Kernel> GatedDeltaKernels() { return kKernels; }

}  // namespace pagemill::gpu
