// Speed of the mean of `pool` next to reading its input.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_batch.h"
#include "cc/ops/pool/pool.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t tokens = static_cast<int32_t>(state.range(0));
  const int64_t size = state.range(1);
  BenchmarkCall call(PoolOp(), {kernel, static_cast<int32_t>(state.range(2))});
  const conformance::PagedBatch batch(16, {{0, tokens}, {0, tokens}}, conformance::Random(1));
  call.AddInput({2 * tokens, size});
  call.AddOutput({2, size});
  call.attributes().Set("kind", static_cast<double>(PoolKind::kMean));
  call.attributes().Set("normalize", 1);
  call.set_batch(&batch.view());
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("Pool", Run)) {
    b->ArgNames({"tokens", "size", "threads"})->ArgsProduct({{16, 512}, {384}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
