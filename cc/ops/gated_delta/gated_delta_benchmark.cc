// Speed of `gated_delta` next to the multiply-add peak, and of decode next to reading and writing
// its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/gated_delta/gated_delta.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t heads = 32, groups = 16, keys = 128, values = 128;
  const int64_t rows = int64_t{requests} * tokens;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(GatedDeltaOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.AddInput({rows, 2 * groups * keys + heads * values});
  call.AddInput({rows, heads});
  call.AddInput({rows, heads});
  call.AddInput({heads});
  call.AddInput({heads});
  call.AddInput({batch.num_blocks(), heads, keys, values});
  call.AddOutput({rows, heads * values});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, 2 * requests * heads * keys * values * int64_t{sizeof(float)});
  } else {
    // A product for the decay, a multiply-add each for what k and q read and for what is written.
    call.ReportOperations(state, static_cast<double>(rows * heads * keys * values) * 7);
  }
}

// A layer of Qwen3-Next 80B-A3B: decode of one and of 8 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("GatedDelta", Run)) {
    b->ArgNames({"requests", "tokens", "threads"})
        ->ArgsProduct({{1, 8}, {1}, {1, 2}})
        ->ArgsProduct({{1}, {256}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
