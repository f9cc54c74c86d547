// Speed of `compress_tokens` next to the multiply-add peak, and of decode next to reading its rows
// and reading and writing its states.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/compress_tokens/compress_tokens.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

// Multiply-adds of two exponentials, and of the sums.
constexpr double kMultiplyAdds = 32;

void Run(benchmark::State& state) {
  const int32_t requests = static_cast<int32_t>(state.range(0));
  const int32_t tokens = static_cast<int32_t>(state.range(1));
  const int64_t parts = state.range(2), window = parts == 1 ? 128 : 4, channels = state.range(3);
  const int64_t rows = int64_t{requests} * tokens, width = parts * channels;
  const conformance::PagedBatch batch(
      4096, std::vector<conformance::PagedRequest>(requests, {.context = 16, .tokens = tokens}),
      conformance::Random(1));
  BenchmarkCall call(CompressTokensOp(), {"portable", static_cast<int32_t>(state.range(4))});
  for (int i = 0; i < 2; ++i) call.AddInput({rows, width});
  call.AddInput({window, width});
  call.AddInput({batch.num_blocks(), parts, 3, channels});
  call.AddOutput({rows, channels});
  call.set_batch(&batch.view());
  call.Time(state);
  if (tokens == 1) {
    call.ReportBytes(state, requests * (2 * width + 6 * width) * int64_t{sizeof(float)});
  } else {
    call.ReportOperations(state, static_cast<double>(rows * width) * 2 * kMultiplyAdds);
  }
}

// DeepSeek-V4: rows of 128 tokens, of 4, and those of the indexer.
BENCHMARK(Run)
    ->Name("CompressTokens")
    ->ArgNames({"requests", "tokens", "parts", "channels", "threads"})
    ->ArgsProduct({{1, 32}, {1}, {1, 2}, {512}, {1}})
    ->ArgsProduct({{1}, {256}, {1, 2}, {512}, {1, 2}})
    ->ArgsProduct({{1}, {256}, {2}, {128}, {1}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
