// Speed of `causal_conv` next to reading its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/causal_conv/causal_conv.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t channels = state.range(2);
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(CausalConvOp(), {kernel, static_cast<int32_t>(state.range(3))});
  call.AddInput({requests * tokens, channels});
  call.AddInput({channels, 4});
  call.AddInput({channels});
  call.AddInput({batch.num_blocks(), 3, channels});
  call.AddOutput({requests * tokens, channels});
  call.set_batch(&batch.view());
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

// Mamba-2 of 130 million parameters, Granite 4 micro: decode of one and of 32 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("CausalConv", Run)) {
    b->ArgNames({"requests", "tokens", "channels", "threads"})
        ->ArgsProduct({{1, 32}, {1}, {1792, 3328}, {1, 2}})
        ->ArgsProduct({{1}, {512}, {1792, 3328}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
