// Speed of `matrix_wkv` next to the multiply-add peak, and of decode next to reading and writing
// its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/matrix_wkv/matrix_wkv.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t heads = 64, size = 64, width = heads * size, rows = int64_t{requests} * tokens;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(MatrixWkvOp(), {kernel, static_cast<int32_t>(state.range(2))});
  for (int i = 0; i < 4; ++i) call.AddInput({rows, width});  // receptance, decay, key, value
  call.AddInput({width});                                    // bonus
  call.AddInput({rows, width});                              // rate
  for (int i = 0; i < 2; ++i) call.AddInput({width});        // removal, boost
  call.AddInput({batch.num_blocks(), heads, size, size});
  for (int i = 0; i < 2; ++i) call.AddOutput({rows, width});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, 2 * requests * width * size * int64_t{sizeof(float)});
  } else {
    // A product for the decay, a multiply-add each for what is added, what r reads, what is removed
    // and what is there to be removed.
    call.ReportOperations(state, static_cast<double>(rows * width * size) * 9);
  }
}

// A layer of RWKV-7 7.2B: decode of one and of 8 requests, a prompt.
[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("MatrixWkv", Run)) {
    b->ArgNames({"requests", "tokens", "threads"})
        ->ArgsProduct({{1, 8}, {1}, {1, 2}})
        ->ArgsProduct({{1}, {256}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
