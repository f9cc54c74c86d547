// Speed of `stream_weights` next to the multiply-add peak; divisions and exponentials bound it.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/stream_weights/stream_weights.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0), streams = 4, iterations = 20;
  BenchmarkCall call(StreamWeightsOp(), {"portable", static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, streams * (streams + 2)});
  call.AddInput({streams * (streams + 2)});
  call.AddInput({3});
  call.AddOutput({tokens, streams});
  call.AddOutput({tokens, streams, streams + 1});
  call.attributes().Set("iterations", iterations);
  call.attributes().Set("eps", 1e-6);
  call.Time(state);
  // An addition and a division of each pair, twice in an iteration.
  call.ReportOperations(state, static_cast<double>(tokens * streams * streams * iterations * 4));
}

// DeepSeek-V4.
BENCHMARK(Run)
    ->Name("StreamWeights")
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{1, 32, 512}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
