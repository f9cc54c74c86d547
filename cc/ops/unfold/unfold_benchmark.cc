// Speed of `unfold` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/unfold/unfold.h"

namespace pagemill::ops {
namespace {

// Frequencies of Qwen3-Omni's encoder of audio: 480 channels, windows of 3 with a stride of 2.
void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  BenchmarkCall call(UnfoldOp(), {"portable", static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 64, 480});
  call.AddOutput({tokens, 32, 1440});
  call.attributes().Set("size", 3);
  call.attributes().Set("stride", 2);
  call.attributes().Set("padding", 1);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

BENCHMARK(Run)
    ->Name("Unfold")
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{1, 13, 104}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
