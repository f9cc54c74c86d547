// Speed of `split` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/split/split.h"

namespace pagemill::ops {
namespace {

// The queries of DeepSeek-V2-Lite: 16 heads of 128 unrotated and 64 rotated elements.
void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  BenchmarkCall call(SplitOp(), {"portable", static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 16, 192});
  call.AddOutput({tokens, 16, 128});
  call.AddOutput({tokens, 16, 64});
  call.attributes().Set("at", 128);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

BENCHMARK(Run)
    ->Name("Split")
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{1, 32, 512}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
