#include "cc/ops/stream_weights/stream_weights.h"

#include <cmath>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/row_split.h"
#include "cc/ops/stream_weights/weights_of_row.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxIterations = 1000;
// Multiply-adds of an element of a row: exponentials, and divisions in each iteration.
constexpr int64_t kCost = 16, kIterationCost = 8;

Status CheckStreamWeights(const OpCall& call) {
  const bool both = call.outputs.size() > 1;
  OperandCheck check("stream_weights", call, /*inputs=*/3, /*outputs=*/both ? 2 : 1);
  check.Output(0, "before", DType::kF32, "T,N");
  if (!check.ok()) return check.Result();
  const int64_t streams = check.Dim('N'), width = both ? streams * (streams + 2) : streams;
  check.Require(streams >= 1 && streams <= kMaxStreams,
                "there must be 1 to " + std::to_string(kMaxStreams) + " streams, got " +
                    std::to_string(streams));
  check.Input(0, "mixes", DType::kF32, "T,C");
  check.Require(check.Dim('C') == width, "rows of mixes must have " + std::to_string(width) +
                                             " elements, got " + std::to_string(check.Dim('C')));
  check.Input(1, "base", DType::kF32, "C");
  check.Input(2, "scale", DType::kF32, "S");
  check.Require(check.Dim('S') == (both ? 3 : 1), "scale must have an element for each kind");
  if (both) {
    check.Output(1, "after", DType::kF32, "T,N,J");
    check.Require(check.Dim('J') == streams + 1, "after must be [T, N, N + 1]");
  }
  check.IntegerAttribute("iterations", /*fallback=*/1, 1, kMaxIterations);
  const double eps = check.ok() ? call.attributes->Get("eps", 0) : 0;
  check.Require(eps >= 0 && std::isfinite(eps), "attribute eps must be a number of at least 0");
  return check.Result();
}

void Run(const OpCall& call, KernelContext& context) {
  const int64_t cost = kCost + kIterationCost * call.attributes->GetInt("iterations", 1);
  const int64_t grain = RowsPerChunk(call.inputs[0].RowElements() * cost);
  context.pool->ParallelFor(call.inputs[0].shape[0], grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      stream_weights::WeightsOfRow<float>(stream_weights::RowOf(call, t)).Run();
    }
  });
}

constexpr Kernel kKernels[] = {
    {"stream_weights", "portable", 10, OnEveryCpu, Run},
    {"stream_weights", "reference", 0, OnEveryCpu, stream_weights::RunReference},
};

constexpr OpDefinition kDefinition{"stream_weights", CheckStreamWeights, kKernels};

}  // namespace

const OpDefinition& StreamWeightsOp() { return kDefinition; }

}  // namespace pagemill::ops
