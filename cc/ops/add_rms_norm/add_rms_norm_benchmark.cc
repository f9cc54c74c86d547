// Speed of `add_rms_norm` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/benchmark_call.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  BenchmarkCall call(AddRmsNormOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({rows, size});
  call.AddInput({rows, size});
  call.AddInput({size});
  call.AddOutput({rows, size});
  call.AddOutput({rows, size});
  call.attributes().Set("eps", 1e-5);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("AddRmsNorm", Run)) {
    b->ArgNames({"rows", "size", "threads"})->ArgsProduct({{1, 32, 1024}, {576, 2048}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
