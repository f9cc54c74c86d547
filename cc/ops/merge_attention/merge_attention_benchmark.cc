// Speed of `merge_attention` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/merge_attention/merge_attention.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int64_t tokens = state.range(0), sets = state.range(1), heads = 64, size = 512;
  BenchmarkCall call(MergeAttentionOp(), {"portable", static_cast<int32_t>(state.range(2))});
  call.AddInput({heads});
  for (int64_t s = 0; s < sets; ++s) {
    call.AddInput({tokens, heads, size});
    call.AddInput({tokens, heads});
  }
  call.AddOutput({tokens, heads, size});
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// DeepSeek-V4-Flash.
BENCHMARK(Run)
    ->Name("MergeAttention")
    ->ArgNames({"tokens", "sets", "threads"})
    ->ArgsProduct({{1, 32, 512}, {1, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
