// Speed of each kind of `activation` next to reading its operands from cache.
#include <benchmark/benchmark.h>

#include "cc/ops/activation/activation.h"
#include "cc/ops/benchmark_call.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  BenchmarkCall call(ActivationOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({rows, size});
  call.AddOutput({rows, size});
  call.attributes().Set("kind", static_cast<double>(state.range(3)));
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("Activation", Run)) {
    b->ArgNames({"rows", "size", "threads", "kind"})
        ->ArgsProduct({{64}, {1536}, {1}, {0, 1, 2, 3, 4}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
