// Speed of `sparse_relu` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/sparse_relu/sparse_relu.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  BenchmarkCall call(SparseReluOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({rows, size});
  call.AddOutput({rows, size});
  call.attributes().Set("deviations", 1.645);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// The gates of Gemma 3n E2B and E4B.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("SparseRelu", Run)) {
    b->ArgNames({"rows", "size", "threads"})->ArgsProduct({{1, 32, 512}, {8192, 16384}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
