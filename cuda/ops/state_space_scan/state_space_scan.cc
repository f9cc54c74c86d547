#include "cc/ops/state_space_scan/state_space_scan.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_steps.h"
#include "cuda/ops/states/state_tile.h"
#include "cuda/ops/states/token_chunks.h"

namespace pagemill::gpu {
namespace {

// What all heads have in common. A row of xbc holds x of all heads, B and C of all groups.
template <typename T>
struct Operands {
  Rows<const T> xbc, dt;
  const float* a_log;
  const float* d;
  const float* dt_bias;
  Rows<float> states;
  Rows<T> y;
  int heads, num_states, head_dim, groups;
  bool has_quads;  // B and C are whole, aligned Vectors of four elements
};

// A team's token, for one head.
template <typename T, int kRows>
struct Fetched {
  HalfTeamVector<T, kRows> bc;  // B in the first half, C in the other
  T x = {}, dt = {};
};

// The same as the block uses it.
template <int kRows>
struct Token {
  StateQuad b[kRows / 4];
  StateQuad c[kRows / 4];
  Vector<float, 2> x[StateTile<kRows>::kColumns / 2];
  float step, decay;
};

// The operands of a row; `column` is the block's first.
template <typename T, int kRows>
PAGEMILL_DEVICE Fetched<T, kRows> Fetch(const Operands<T>& args, int head, int column,
                                        int32_t row) {
  Fetched<T, kRows> fetched;
  const T* const xbc = args.xbc[row];
  const int b = args.heads * args.head_dim + head / (args.heads / args.groups) * args.num_states;
  const int c = b + args.groups * args.num_states, n = ThreadOfTeam();
  fetched.bc.Load(xbc + (InFirstHalf() ? b : c), args.num_states, args.has_quads);
  const bool has_column = n < StateTile<kRows>::kColumns && column + n < args.head_dim;
  if (has_column) fetched.x = xbc[head * args.head_dim + column + n];
  fetched.dt = args.dt[row][head];
  return fetched;
}

template <typename T, int kRows>
PAGEMILL_DEVICE void Put(const Fetched<T, kRows>& fetched, float dt_bias, float rate,
                         Token<kRows>& token) {
  fetched.bc.Store(1, InFirstHalf() ? token.b : token.c);
  const int n = ThreadOfTeam();
  if (n < StateTile<kRows>::kColumns) token.x[n / 2].values[n % 2] = ToFloat(fetched.x);
  const float step = Softplus(ToFloat(fetched.dt) + dt_bias), decay = Exp(step * rate);
  if (n > 0) return;
  token.step = step;
  token.decay = decay;
}

// Advances the state by a token. Each column's products with C are added to `sums`.
template <int kRows>
PAGEMILL_DEVICE void Advance(StateTile<kRows>& tile, const Token<kRows>& token, float (&sums)[2]) {
  const Vector<float, 2> x = token.x[tile.column_in_block() / 2];
  const float decay = token.decay, step = token.step;
  const float added[2] = {step * x.values[0], step * x.values[1]};
  const StateRows b = tile.RowsOf(token.b), c = tile.RowsOf(token.c);
  tile.ForEachRow([&](float (&h)[2], int r) {
    for (int i = 0; i < 2; ++i) {
      h[i] = fmaf(decay, h[i], RoundedProduct(added[i], b[r]));
      sums[i] += h[i] * c[r];
    }
  });
}

// What the result of the lane's own column has beside that. Compilers would fuse the product with a
// sum in one of the places where this is inlined, and not in another.
template <int kRows>
PAGEMILL_DEVICE float Skip(const StateTile<kRows>& tile, const Token<kRows>& token, float d) {
  const int column = tile.column_in_block();
  return RoundedProduct(d, token.x[column / 2].values[column % 2]);
}

// A block for columns of a head's state of a request.
template <typename T, int kRows>
PAGEMILL_KERNEL_OF(kStateThreads, 3)
ScanHead(Operands<T> args, StepTokens batch) {
  using Chunks = Token<kRows>[2][kChunkTokens];
  PAGEMILL_SHARED(Chunks, chunks);
  const int tiles = static_cast<int>(GridSize().x) / args.heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  const int block = static_cast<int>(BlockIndex().x) % tiles;
  StateTile<kRows> tile(args.num_states, args.head_dim, block);
  const int64_t matrix = int64_t{head} * args.num_states * args.head_dim;
  const float d = args.d[head], dt_bias = args.dt_bias[head], rate = -Exp(args.a_log[head]);
  Fetched<T, kRows> fetched;
  const bool has_columns = tile.HasColumnsOfWarp();
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : args.states[run.source] + matrix);
    float sums[2] = {}, skip = 0;  // of a row that is not stored yet
    const auto store = [&](int32_t row) {
      const float sum = tile.Sum(sums) + skip;
      sums[0] = sums[1] = 0;
      if (row < run.begin || !tile.is_first()) return;
      args.y[row][head * int64_t{args.head_dim} + tile.column()] = FromFloat<T>(sum);
    };
    ForEachToken(
        run.begin, run.end, has_columns,
        [&](int32_t row) {
          if (row < run.end) fetched = Fetch<T, kRows>(args, head, block * tile.kColumns, row);
        },
        [&](int buffer) { Put(fetched, dt_bias, rate, chunks[buffer][Team()]); },
        [&](int32_t row, int buffer, int t) {
          const Token<kRows>& token = chunks[buffer][t];
          store(row - 1);  // beside this row's work, for nothing waits for it
          skip = Skip(tile, token, d);
          Advance(tile, token, sums);
        });
    store(run.end - 1);
    if (run.target != ops::kNullPage) tile.Store(args.states[run.target] + matrix);
  });
}

// A step in which each request has one token.
template <typename T, int kRows>
PAGEMILL_KERNEL_OF(kStateThreads, 4)
ScanStep(Operands<T> args, StepTokens batch) {
  using Tokens = Token<kRows>[kStepHeads];
  PAGEMILL_SHARED(Tokens, tokens);
  ForEachHeadOfStep<kRows>(
      args.states, {.rows = args.num_states, .columns = args.head_dim, .heads = args.heads}, batch,
      [&](int head, int column, int32_t row) {
        const Fetched<T, kRows> fetched = Fetch<T, kRows>(args, head, column, row);
        Put(fetched, args.dt_bias[head], -Exp(args.a_log[head]), tokens[Team()]);
      },
      [&](StateTile<kRows>& tile, int head, int i, int32_t row) {
        float sums[2] = {};
        Advance(tile, tokens[i], sums);
        const float sum = tile.Sum(sums) + Skip(tile, tokens[i], args.d[head]);
        if (!tile.is_first()) return;
        args.y[row][head * int64_t{args.head_dim} + tile.column()] = FromFloat<T>(sum);
      });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToStateSpaceScanArgs(call).states <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::StateSpaceScanArgs args = ops::ToStateSpaceScanArgs(call);
  WithActType(args.xbc.dtype, [&]<typename T>(T) {
    const Operands<T> operands = {.xbc = RowsOf<const T>(args.xbc),
                                  .dt = RowsOf<const T>(args.dt),
                                  .a_log = args.a_log.Data<const float>(),
                                  .d = args.d.Data<const float>(),
                                  .dt_bias = args.dt_bias.Data<const float>(),
                                  .states = RowsOf<float>(args.state),
                                  .y = RowsOf<T>(args.y),
                                  .heads = static_cast<int>(args.heads),
                                  .num_states = static_cast<int>(args.states),
                                  .head_dim = static_cast<int>(args.head_dim),
                                  .groups = static_cast<int>(args.groups),
                                  .has_quads = args.states % 4 == 0 && args.head_dim % 4 == 0 &&
                                               HasAlignedRows(args.xbc)};
    WithStateTiles(
        args.states, args.head_dim, args.heads, args.batch->num_requests,
        [&]<int kRows>(const LaunchShape& shape) {
          if (HasSingleTokens(*args.batch)) {
            return Launch(*context.stream, ShapeOfStateSteps(shape, args.heads, *context.stream),
                          ScanStep<T, kRows>, operands, StepTokensOf(*args.batch));
          }
          Launch(*context.stream, shape, ScanHead<T, kRows>, operands, StepTokensOf(*args.batch));
        });
  });
}

constexpr ops::Kernel kKernels[] = {{"state_space_scan", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> StateSpaceScanKernels() { return kKernels; }

}  // namespace pagemill::gpu
