// Speed of `kv_write` with 3 heads of 64 and a bf16 cache, against reading its operands from the
// cache level that they fit in. tokens = 1024 is a prefill; with decode = 1 each token is a
// request's own.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t tokens = static_cast<int32_t>(state.range(0));
  std::vector<conformance::PagedRequest> requests = {{0, tokens}};
  if (state.range(2) != 0) requests.assign(tokens, {.context = 37, .tokens = 1});
  const conformance::PagedBatch batch(16, requests, conformance::Random(1));
  BenchmarkCall call(KvWriteOp(), {kernel, static_cast<int32_t>(state.range(1))});
  call.AddInput({tokens, 3, 64});
  call.AddInput({tokens, 3, 64});
  call.AddInput({batch.num_blocks(), 2 * 3 * 64 * 16}, DType::kBF16);
  call.set_batch(&batch.view());
  call.Time(state);
  const int64_t elements = int64_t{tokens} * 2 * 3 * 64;
  call.ReportBytes(state, elements * (4 + 2));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("KvWrite", Run)) {
    b->ArgNames({"tokens", "threads", "decode"})->ArgsProduct({{1, 32, 1024}, {1, 2}, {0, 1}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
