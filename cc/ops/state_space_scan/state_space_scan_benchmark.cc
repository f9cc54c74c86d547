// Speed of `state_space_scan` next to the multiply-add peak, and of decode next to reading and
// writing its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_batch.h"
#include "cc/ops/state_space_scan/state_space_scan.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t heads = state.range(2), head_dim = 64, states = 128;
  const int64_t rows = int64_t{requests} * tokens;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(StateSpaceScanOp(), {kernel, static_cast<int32_t>(state.range(3))});
  call.AddInput({rows, heads * head_dim + 2 * states});
  call.AddInput({rows, heads});
  for (int i = 0; i < 3; ++i) call.AddInput({heads});
  call.AddInput({batch.num_blocks(), heads, states, head_dim});
  call.AddOutput({rows, heads * head_dim});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, 2 * requests * heads * states * head_dim * int64_t{sizeof(float)});
  } else {
    // A product for the decay, a multiply-add each for the input and the output.
    call.ReportOperations(state, static_cast<double>(rows * heads * states * head_dim) * 5);
  }
}

// Mamba-2 of 130 million parameters, Granite 4 micro: decode of one and of 32 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("StateSpaceScan", Run)) {
    b->ArgNames({"requests", "tokens", "heads", "threads"})
        ->ArgsProduct({{1, 32}, {1}, {24, 48}, {1, 2}})
        ->ArgsProduct({{1}, {512}, {24, 48}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
