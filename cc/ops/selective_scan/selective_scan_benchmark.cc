// Speed of `selective_scan` next to the multiply-add peak, and of decode next to reading and writing
// its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_batch.h"
#include "cc/ops/selective_scan/selective_scan.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t channels = state.range(2), states = 16;
  const int64_t rows = int64_t{requests} * tokens;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(SelectiveScanOp(), {kernel, static_cast<int32_t>(state.range(3))});
  for (int64_t width : {channels, channels, states, states}) call.AddInput({rows, width});
  call.AddInput({channels, states});
  call.AddInput({channels});
  call.AddInput({channels});
  call.AddInput({batch.num_blocks(), states, channels});
  call.AddOutput({rows, channels});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, 2 * requests * states * channels * int64_t{sizeof(float)});
  } else {
    // Two products, two multiply-adds and an exponential (a product and six multiply-adds).
    call.ReportOperations(state, static_cast<double>(rows * channels * states) * 19);
  }
}

// Mamba of 130 million parameters, Falcon-Mamba 7B: decode of one and of 32 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("SelectiveScan", Run)) {
    b->ArgNames({"requests", "tokens", "channels", "threads"})
        ->ArgsProduct({{1, 32}, {1}, {1536, 8192}, {1}})
        ->ArgsProduct({{1}, {256}, {1536, 8192}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
