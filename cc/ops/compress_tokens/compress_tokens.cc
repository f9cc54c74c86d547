#include "cc/ops/compress_tokens/compress_tokens.h"

#include <algorithm>
#include <string>

#include "cc/ops/exp.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/states/channel_blocks.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// Multiply-adds of a token and channel, most of them of an exponential.
constexpr int64_t kCost = 24;

Status CheckCompressTokens(const OpCall& call) {
  OperandCheck check("compress_tokens", call, /*inputs=*/4, /*outputs=*/1);
  check.Input(3, "state", DType::kF32, "P,S,R,C");
  check.ActInput(0, "x", "T,W*");
  check.ActInput(1, "gate", "T,W*");
  check.Input(2, "bias", DType::kF32, "M,W");
  check.ActOutput(0, "y", "T,C");
  if (!check.ok()) return check.Result();
  const int64_t parts = check.Dim('S');
  check.Require(check.Dim('R') == 3 && (parts == 1 || parts == 2),
                "states must be [1 or 2, 3, channels]");
  check.Require(check.Dim('W') == parts * check.Dim('C'),
                "rows of x have " + std::to_string(check.Dim('W')) + " elements, states have " +
                    std::to_string(parts) + " parts of " + std::to_string(check.Dim('C')));
  return check.Result();
}

// Some channels of the sums of one part.
struct Sums {
  float* max;
  float* weights;
  float* values;

  // The sums of part `part` in a state of `parts` times [3, channels], from channel `first` on.
  static Sums In(float* state, int64_t part, int64_t channels, int64_t first) {
    float* const at = state + part * 3 * channels + first;
    return {at, at + channels, at + 2 * channels};
  }
};

// One token's operands from the first of the block's channels on.
struct Token {
  const float* x;
  const float* gate;
  const float* bias;
};

void Start(const Sums& sums, const Token& token, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    sums.max[i] = token.gate[i] + token.bias[i];
    sums.weights[i] = 1;
    sums.values[i] = token.x[i];
  }
}

void Add(const Sums& sums, const Token& token, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const float z = token.gate[i] + token.bias[i], before = sums.max[i];
    const float max = z > before ? z : before;
    // One of the two is e^0.
    const float old = Exp(before - max), added = Exp(z - max);
    sums.max[i] = max;
    sums.weights[i] = sums.weights[i] * old + added;
    sums.values[i] = sums.values[i] * old + added * token.x[i];
  }
}

void Copy(const Sums& from, const Sums& to, int64_t size) {
  std::copy_n(from.max, size, to.max);
  std::copy_n(from.weights, size, to.weights);
  std::copy_n(from.values, size, to.values);
}

// Tokens between two states, `size` channels from `first` on. The sums are in the target's page.
void RunTokens(const CompressTokensArgs& args, int64_t request, const StateRun& run, int64_t first,
               int64_t size) {
  const int64_t channels = args.channels, last = args.last_part();
  float* const state = args.state.Row<float>(run.target);
  const Sums sums = Sums::In(state, last, channels, first);
  const Sums next = Sums::In(state, 0, channels, first);  // of the window behind, if it overlaps
  if (run.source != kNullPage && run.source != run.target) {
    float* const source = args.state.Row<float>(run.source);
    for (int64_t part = 0; part < args.parts; ++part) {
      Copy(Sums::In(source, part, channels, first), Sums::In(state, part, channels, first), size);
    }
  }
  for (int64_t row = run.begin; row < run.end; ++row) {
    const int64_t position = args.PositionOf(request, row), in_window = position % args.window;
    const auto token = [&](int64_t part) -> Token {
      const int64_t at = part * channels + first;
      return {args.x.Row<const float>(row) + at, args.gate.Row<const float>(row) + at,
              args.bias.Row<const float>(in_window) + at};
    };
    const bool overlaps = last > 0;
    if (in_window == 0 && overlaps && position > 0) {
      Copy(next, sums, size);
      Add(sums, token(last), size);
    } else if (in_window == 0) {
      Start(sums, token(last), size);
    } else {
      Add(sums, token(last), size);
    }
    if (overlaps) (in_window == 0 ? Start : Add)(next, token(0), size);
    float* const y = args.y.Row<float>(row) + first;
    const bool closes = in_window == args.window - 1;
    for (int64_t i = 0; i < size; ++i) y[i] = closes ? sums.values[i] / sums.weights[i] : 0.0f;
  }
}

void Run(const OpCall& call, KernelContext& context) {
  const CompressTokensArgs args = ToCompressTokensArgs(call);
  const ChannelWork work = {
      .channels = args.channels, .rows = args.x.shape[0], .cost = args.parts * kCost};
  ForEachChannelBlock(work, *context.pool, [&](int64_t first, int64_t size) {
    ForEachStateRun(*args.batch, [&](int64_t request, const StateRun& run) {
      RunTokens(args, request, run, first, size);
    });
  });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = CompressTokensReference};

constexpr Kernel kKernels[] = {
    {"compress_tokens", "portable", 10, OnEveryCpu, Run},
    WidenedReference<&kReference>("compress_tokens"),
};

constexpr OpDefinition kDefinition{"compress_tokens", CheckCompressTokens, kKernels};

}  // namespace

CompressTokensArgs ToCompressTokensArgs(const OpCall& call) {
  return {.x = call.inputs[0],
          .gate = call.inputs[1],
          .bias = call.inputs[2],
          .state = call.inputs[3],
          .y = call.outputs[0],
          .batch = call.batch,
          .window = call.inputs[2].shape[0],
          .parts = call.inputs[3].shape[1],
          .channels = call.inputs[3].shape[3]};
}

const OpDefinition& CompressTokensOp() { return kDefinition; }

}  // namespace pagemill::ops
