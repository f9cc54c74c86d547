// Speed of `moe_combine` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/moe_combine/moe_combine.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0), choices = state.range(1), width = state.range(2);
  BenchmarkCall call(MoeCombineOp(), {"portable", static_cast<int32_t>(state.range(3))});
  call.AddInput({tokens, choices, width});
  call.AddInput({tokens, choices});
  call.AddOutput({tokens, width});
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// Qwen3-30B-A3B, Mixtral 8x7B.
BENCHMARK(Run)
    ->Name("MoeCombine")
    ->ArgNames({"tokens", "choices", "width", "threads"})
    ->ArgsProduct({{1, 32, 512}, {8}, {2048}, {1, 2}})
    ->ArgsProduct({{1, 32, 512}, {2}, {4096}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
