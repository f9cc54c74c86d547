// Speed of `mix_streams` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/mix_streams/mix_streams.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0), streams = 4, width = 4096;
  const bool joins = state.range(1) != 0;
  BenchmarkCall call(MixStreamsOp(), {"portable", static_cast<int32_t>(state.range(2))});
  call.AddInput({tokens, streams * width});
  if (joins) {
    call.AddInput({tokens, streams, streams + 1});
    call.AddInput({tokens, width});
  } else {
    call.AddInput({tokens, streams});
  }
  call.AddOutput({tokens, joins ? streams * width : width});
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// DeepSeek-V4-Flash: in front of a branch, and behind it.
BENCHMARK(Run)
    ->Name("MixStreams")
    ->ArgNames({"tokens", "joins", "threads"})
    ->ArgsProduct({{1, 32, 512}, {0, 1}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
