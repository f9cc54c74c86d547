// Speed of `latent_write` with the sizes of DeepSeek-V2 and a bf16 cache, next to reading its
// operands from the cache level that they fit in.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
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
  call.AddInput({batch.num_blocks(), 16, 576}, DType::kBF16);
  call.set_batch(&batch.view());
  call.Time(state);
  call.ReportBytes(state, int64_t{tokens} * 576 * (4 + 2));
}

BENCHMARK(Run)
    ->Name("LatentWrite")
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{1, 32, 1024}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace pagemill::ops
