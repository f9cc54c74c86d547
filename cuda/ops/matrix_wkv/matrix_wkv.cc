#include "cc/ops/matrix_wkv/matrix_wkv.h"

#include <cstdint>

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_tile.h"
#include "cuda/ops/states/token_chunks.h"

namespace pagemill::gpu {
namespace {

// What all heads have in common. Operands that a call does not have are null.
template <typename T>
struct Operands {
  Rows<const T> receptance, decay, key, value, rate;
  const float* shared_decay;  // of all tokens, in place of `decay`
  const float* bonus;
  const float* removal;
  const float* boost;
  Rows<float> states;
  Rows<T> y, own;
  int keys, values;
};

template <typename T>
Operands<T> OperandsOf(const ops::MatrixWkvArgs& args) {
  return {.receptance = RowsOf<const T>(args.receptance),
          .decay = RowsOf<const T>(args.decay),
          .key = RowsOf<const T>(args.key),
          .value = RowsOf<const T>(args.value),
          .rate = RowsOf<const T>(args.rate),
          .shared_decay = args.decay_is_shared() ? args.decay.Data<const float>() : nullptr,
          .bonus = args.bonus.Data<const float>(),
          .removal = args.removal.Data<const float>(),
          .boost = args.boost.Data<const float>(),
          .states = RowsOf<float>(args.state),
          .y = RowsOf<T>(args.y),
          .own = RowsOf<T>(args.own),
          .keys = static_cast<int>(args.keys),
          .values = static_cast<int>(args.values)};
}

// A team's token, for one head: a thread has every 32nd element.
template <typename T, int kRows>
struct Fetched {
  static constexpr int kKeys = kRows / kTeamThreads;
  static constexpr int kColumns = (StateTile<kRows>::kColumns - 1) / kTeamThreads + 1;

  T receptance[kKeys] = {}, decay[kKeys] = {}, key[kKeys] = {}, rate[kKeys] = {};
  T value[kColumns] = {};
};

// The same as the block uses it: what it does to the state, and reads of it.
template <int kRows, bool kRemoves>
struct Token {
  StateQuad receptance[kRows / 4];
  StateQuad decay[kRows / 4];
  StateQuad key[kRows / 4];
  StateQuad removed[kRemoves ? kRows / 4 : 1];  // x
  StateQuad share[kRemoves ? kRows / 4 : 1];    // -a * x
  float value[StateTile<kRows>::kColumns];
  float own;  // the factor of the token's own value
};

PAGEMILL_DEVICE float Sigmoid(float x) { return 1 / (1 + Exp(-x)); }

// The operands of a row; `column` is the block's first.
template <typename T, int kRows, bool kRemoves>
PAGEMILL_DEVICE Fetched<T, kRows> Fetch(const Operands<T>& args, int head, int column,
                                        int32_t row) {
  Fetched<T, kRows> fetched;
  PAGEMILL_UNROLL
  for (int i = 0; i < fetched.kKeys; ++i) {
    const int key = ThreadOfTeam() + i * kTeamThreads;
    if (key >= args.keys) continue;
    const int at = head * args.keys + key;
    fetched.receptance[i] = args.receptance[row][at];
    fetched.key[i] = args.key[row][at];
    if (args.shared_decay == nullptr) fetched.decay[i] = args.decay[row][at];
    if constexpr (kRemoves) fetched.rate[i] = args.rate[row][at];
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < fetched.kColumns; ++i) {
    const int in_block = ThreadOfTeam() + i * kTeamThreads;
    if (in_block < StateTile<kRows>::kColumns && column + in_block < args.values) {
      fetched.value[i] = args.value[row][head * args.values + column + in_block];
    }
  }
  return fetched;
}

template <typename T, int kRows, bool kRemoves>
PAGEMILL_DEVICE void Put(const Operands<T>& args, int head, const Fetched<T, kRows>& fetched,
                         Token<kRows, kRemoves>& token) {
  const auto at = [&](const float* vector, int key) {
    return key < args.keys ? vector[head * args.keys + key] : 0;
  };
  float inverse_norm = 0;
  if constexpr (kRemoves) {
    float squares = 0;
    PAGEMILL_UNROLL
    for (int i = 0; i < fetched.kKeys; ++i) {
      const float x = at(args.removal, ThreadOfTeam() + i * kTeamThreads) * ToFloat(fetched.key[i]);
      squares += x * x;
    }
    squares = WarpReduce(squares, Sum{}, kTeamThreads);
    inverse_norm = InverseSqrt(squares < ops::kWkvLeastSquares ? ops::kWkvLeastSquares : squares);
  }
  float own = 0;
  PAGEMILL_UNROLL
  for (int i = 0; i < fetched.kKeys; ++i) {
    const int row = ThreadOfTeam() + i * kTeamThreads;
    const auto put = [&](StateQuad* to, float x) { to[row / 4].values[row % 4] = x; };
    const float receptance = ToFloat(fetched.receptance[i]);
    const float w =
        args.shared_decay != nullptr ? at(args.shared_decay, row) : ToFloat(fetched.decay[i]);
    float key = ToFloat(fetched.key[i]);
    if constexpr (kRemoves) {
      const float rate = Sigmoid(ToFloat(fetched.rate[i]));
      const float x = at(args.removal, row) * key * inverse_norm;
      put(token.removed, x);
      put(token.share, -rate * x);
      key *= 1 + at(args.boost, row) * (rate - 1);
      put(token.decay, Exp(ops::kWkvDecayScale * Sigmoid(w)));
    } else {
      put(token.decay, Exp(-Exp(w)));
    }
    put(token.receptance, receptance);
    put(token.key, key);
    own += receptance * at(args.bonus, row) * key;
  }
  own = WarpReduce(own, Sum{}, kTeamThreads);
  if (ThreadOfTeam() == 0) token.own = own;
  PAGEMILL_UNROLL
  for (int i = 0; i < fetched.kColumns; ++i) {
    const int column = ThreadOfTeam() + i * kTeamThreads;
    if (column < StateTile<kRows>::kColumns) token.value[column] = ToFloat(fetched.value[i]);
  }
}

// Advances the state by a token. Each column's products with the receptance are added to `sums`.
template <bool kRemoves, typename Tile, typename Token>
PAGEMILL_DEVICE void Advance(Tile& tile, const Token& token, float (&sums)[2]) {
  const Vector<float, 2> value = tile.Both(token.value[tile.column_in_block()]);
  Vector<float, 2> predicted = {};
  StateRows share;
  if constexpr (kRemoves) {
    float parts[2] = {};
    const StateRows removed = tile.RowsOf(token.removed);
    tile.ForEachRow([&](float (&h)[2], int r) {
      for (int c = 0; c < 2; ++c) parts[c] += h[c] * removed[r];
    });
    predicted = tile.Both(tile.Sum(parts));
    share = tile.RowsOf(token.share);
  }
  const StateRows decay = tile.RowsOf(token.decay), key = tile.RowsOf(token.key);
  const StateRows receptance = tile.RowsOf(token.receptance);
  tile.ForEachRow([&](float (&h)[2], int r) {
    for (int c = 0; c < 2; ++c) {
      if constexpr (!kRemoves) sums[c] += h[c] * receptance[r];
      h[c] = h[c] * decay[r] + key[r] * value.values[c];
      if constexpr (kRemoves) {
        h[c] += share[r] * predicted.values[c];
        sums[c] += h[c] * receptance[r];
      }
    }
  });
}

// A block for columns of a head's state of a request.
template <typename T, int kRows, bool kRemoves>
PAGEMILL_KERNEL_OF(kStateThreads, (kRows > 128 ? 2 : 3))
WkvHead(Operands<T> args, int heads, StepTokens batch) {
  using Chunks = Token<kRows, kRemoves>[2][kChunkTokens];
  PAGEMILL_SHARED(Chunks, chunks);
  const int tiles = static_cast<int>(GridSize().x) / heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  const int block = static_cast<int>(BlockIndex().x) % tiles;
  StateTile<kRows> tile(args.keys, args.values, block);
  const int matrix = head * args.keys * args.values;
  Fetched<T, kRows> fetched;
  const bool has_columns = tile.HasColumnsOfWarp();
  ForEachStateRun(batch, BlockIndex().y, [&](const ops::StateRun& run) {
    tile.Load(run.source == ops::kNullPage ? nullptr : args.states[run.source] + matrix);
    float sums[2] = {}, of_token = 0;  // of a row that is not stored yet
    const auto store = [&](int32_t row) {
      const float sum = tile.Sum(sums);
      sums[0] = sums[1] = 0;
      if (row < run.begin || !tile.is_first()) return;
      const int at = head * args.values + tile.column();
      args.y[row][at] = FromFloat<T>(kRemoves ? sum : sum + of_token);
      if constexpr (kRemoves) args.own[row][at] = FromFloat<T>(of_token);
    };
    ForEachToken(
        run.begin, run.end, has_columns,
        [&](int32_t row) {
          if (row >= run.end) return;
          fetched = Fetch<T, kRows, kRemoves>(args, head, block * tile.kColumns, row);
        },
        [&](int buffer) { Put(args, head, fetched, chunks[buffer][Team()]); },
        [&](int32_t row, int buffer, int t) {
          const Token<kRows, kRemoves>& token = chunks[buffer][t];
          store(row - 1);  // beside this row's work, for nothing waits for it
          of_token = token.own * token.value[tile.column_in_block()];
          Advance<kRemoves>(tile, token, sums);
        });
    store(run.end - 1);
    if (run.target != ops::kNullPage) tile.Store(args.states[run.target] + matrix);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::ToMatrixWkvArgs(call).keys <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::MatrixWkvArgs args = ops::ToMatrixWkvArgs(call);
  WithActType(args.receptance.dtype, [&]<typename T>(T) {
    // Heads of the published models have 64 rows.
    WithStateTiles<64>(args.keys, args.values, args.heads, args.batch->num_requests,
                       [&]<int kRows>(const LaunchShape& shape) {
                         Launch(*context.stream, shape,
                                args.removes() ? WkvHead<T, kRows, true> : WkvHead<T, kRows, false>,
                                OperandsOf<T>(args), static_cast<int>(args.heads),
                                StepTokensOf(*args.batch));
                       });
  });
}

constexpr ops::Kernel kKernels[] = {{"matrix_wkv", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> MatrixWkvKernels() { return kKernels; }

}  // namespace pagemill::gpu
