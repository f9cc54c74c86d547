// Speed of `layer_norm` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/layer_norm/layer_norm.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  BenchmarkCall call(LayerNormOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({rows, size});
  call.AddInput({size});
  call.AddInput({size});
  call.AddOutput({rows, size});
  call.attributes().Set("eps", 1e-5);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("LayerNorm", Run)) {
    b->ArgNames({"rows", "size", "threads"})->ArgsProduct({{32, 1024}, {384}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
