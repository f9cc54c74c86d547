// Speed of `scale` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/scale/scale.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  BenchmarkCall call(ScaleOp(), {"portable", static_cast<int32_t>(state.range(2))});
  call.AddInput({state.range(0), state.range(1)});
  call.AddOutput({state.range(0), state.range(1)});
  call.attributes().Set("by", 0.22);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// Residuals of Granite 4 micro.
BENCHMARK(Run)
    ->Name("Scale")
    ->ArgNames({"rows", "size", "threads"})
    ->ArgsProduct({{1, 32, 512}, {2048}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
