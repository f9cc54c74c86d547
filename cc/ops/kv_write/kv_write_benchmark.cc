// Speed of `kv_write` with 3 heads of 64 and a bf16 cache, next to reading its operands from the
// cache level that they fit in. tokens = 1024 is a prefill; with decode = 1 each token belongs to
// another request.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/kv_write/token_steps.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t tokens = TokensOf(state);
  const conformance::PagedBatch batch = TokenStep(state);
  BenchmarkCall call(KvWriteOp(), {kernel, ThreadsOf(state)});
  call.AddInput({tokens, 3, 64});
  call.AddInput({tokens, 3, 64});
  call.AddInput({batch.num_blocks(), 2 * 3 * 64 * 16}, DType::kBF16);
  call.set_batch(&batch.view());
  call.Time(state);
  const int64_t elements = int64_t{tokens} * 2 * 3 * 64;
  call.ReportBytes(state, elements * (4 + 2));
}

[[maybe_unused]] const bool kRegistered = RegisterForTokenSteps("KvWrite", Run);

}  // namespace
}  // namespace pagemill::ops
