// Speed of `concat` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/concat/concat.h"

namespace pagemill::ops {
namespace {

// The hidden state and the embedding in front of a shared block of Zamba2 2.7B.
void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  BenchmarkCall call(ConcatOp(), {"portable", static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 2560});
  call.AddInput({tokens, 2560});
  call.AddOutput({tokens, 5120});
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

BENCHMARK(Run)
    ->Name("Concat")
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{1, 32, 512}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
