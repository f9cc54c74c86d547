// Speed of `wkv` next to the multiply-add peak, and of decode next to reading and
// writing its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_batch.h"
#include "cc/ops/wkv/wkv.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t channels = state.range(2), rows = int64_t{requests} * tokens;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(WkvOp(), {kernel, static_cast<int32_t>(state.range(3))});
  for (int i = 0; i < 2; ++i) call.AddInput({rows, channels});
  for (int i = 0; i < 2; ++i) call.AddInput({channels});
  call.AddInput({batch.num_blocks(), kWkvStateRows, channels});
  call.AddOutput({rows, channels});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, 2 * kWkvStateRows * requests * channels * int64_t{sizeof(float)});
  } else {
    call.ReportOperations(state, static_cast<double>(rows * channels) * 64);
  }
}

// RWKV-4 1.5B and 7B: decode of one and of 32 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("Wkv", Run)) {
    b->ArgNames({"requests", "tokens", "channels", "threads"})
        ->ArgsProduct({{1, 32}, {1}, {2048, 4096}, {1}})
        ->ArgsProduct({{1}, {256}, {2048, 4096}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
