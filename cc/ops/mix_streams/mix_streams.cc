#include "cc/ops/mix_streams/mix_streams.h"

#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

Status CheckMixStreams(const OpCall& call) {
  const bool joins = call.inputs.size() > 2;
  OperandCheck check("mix_streams", call, /*inputs=*/joins ? 3 : 2, /*outputs=*/1);
  check.ActInput(0, "x", "T,X*");
  const bool one = check.ok() && call.inputs[1].rank == 2;
  check.Input(1, "weights", DType::kF32, one ? "T,J" : "T,M,J");
  if (joins) check.ActInput(2, "y", "T,W*");
  check.ActOutput(0, "z", "T,Z*");
  if (!check.ok()) return check.Result();
  const int64_t mixes = one ? 1 : check.Dim('M'), streams = check.Dim('J') - (joins ? 1 : 0);
  check.Require(mixes >= 1 && streams >= 1, "there must be at least one stream and one mix");
  if (!check.ok()) return check.Result();
  const int64_t width = check.Dim('X') / streams;
  check.Require(width >= 1 && width * streams == check.Dim('X') &&
                    width * mixes == check.Dim('Z') && (!joins || width == check.Dim('W')),
                "rows of x must have " + std::to_string(streams) +
                    " streams of one width, rows of z " + std::to_string(mixes) + ", got rows of " +
                    std::to_string(check.Dim('X')) + " and " + std::to_string(check.Dim('Z')));
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b101, .run = mix_streams::RunReference};

constexpr Kernel kKernels[] = {
    {"mix_streams", "portable", 10, OnEveryCpu, mix_streams::RunPortable},
    WidenedReference<&kReference>("mix_streams"),
};

constexpr OpDefinition kDefinition{"mix_streams", CheckMixStreams, kKernels};

}  // namespace

const OpDefinition& MixStreamsOp() { return kDefinition; }

namespace mix_streams {

Args ToArgs(const OpCall& call) {
  const TensorView& weights = call.inputs[1];
  Args args{.x = call.inputs[0], .weights = weights, .y = {}, .z = call.outputs[0]};
  if (call.inputs.size() > 2) args.y = call.inputs[2];
  args.mixes = weights.rank == 2 ? 1 : weights.shape[1];
  args.streams = weights.shape[weights.rank - 1] - (args.y.rank > 0 ? 1 : 0);
  args.width = args.x.RowElements() / args.streams;
  return args;
}

}  // namespace mix_streams

}  // namespace pagemill::ops
