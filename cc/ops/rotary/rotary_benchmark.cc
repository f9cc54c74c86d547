// Speed of `rotary` on 9 query and 3 key heads of 64, next to reading its operands from the cache
// level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/rotary/rotary.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t tokens = state.range(0);
  conformance::Random random(2);
  BenchmarkCall call(RotaryOp(), {kernel, static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 9, 64});
  call.AddInput({tokens, 3, 64});
  const int64_t dims = state.range(3);
  if (dims == 1) {
    call.AddInput({tokens}, DType::kI32).FillUniform(random, 0, 2048);
    call.AddInput({32}).FillUniform(random, 0, 1);
  } else {
    call.AddInput({tokens, dims}, DType::kI32).FillUniform(random, 0, 2048);
    call.AddInput({dims, 32}).FillUniform(random, 0, 1);
  }
  call.AddOutput({tokens, 9, 64});
  call.AddOutput({tokens, 3, 64});
  call.attributes().Set("interleaved", static_cast<double>(state.range(2)));
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("Rotary", Run)) {
    b->ArgNames({"tokens", "threads", "interleaved", "dims"})
        ->ArgsProduct({{1, 32, 1024}, {1, 2}, {0, 1}, {1, 3}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
