// Speed of `latent_write` with the sizes of DeepSeek-V2 and caches in bf16 and fp8, next to reading
// its operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state) {
  const int32_t tokens = static_cast<int32_t>(state.range(0));
  const conformance::PagedBatch batch(16, {{.context = 0, .tokens = tokens}},
                                      conformance::Random(1));
  BenchmarkCall call(LatentWriteOp(), {"portable", static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 512});
  call.AddInput({tokens, 1, 64});
  const bool is_f8 = state.range(2) != 0;
  const int64_t row = is_f8 ? LatentF8Row{.codes = 512, .rest = 64}.bytes() : 576;
  call.AddInput({batch.num_blocks(), 16, row}, is_f8 ? DType::kF8E4M3 : DType::kBF16);
  call.attributes().Set("bf16_elements", 64);
  call.set_batch(&batch.view());
  call.Time(state);
  call.ReportBytes(state, int64_t{tokens} * (576 * 4 + (is_f8 ? row : 2 * row)));
}

BENCHMARK(Run)
    ->Name("LatentWrite")
    ->ArgNames({"tokens", "threads", "f8"})
    ->ArgsProduct({{1, 32, 1024}, {1, 2}, {0, 1}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
