// Speed of `rotary_kv_write` with 9 query and 3 key heads of 64 and a bf16 cache, next to reading
// its operands from the cache level that they fit in. tokens = 1024 is a prefill; with decode = 1
// each token belongs to another request.
#include <benchmark/benchmark.h>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/kv_write/token_steps.h"
#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

namespace pagemill::ops {
namespace {

void Run(benchmark::State& state, const std::string& kernel) {
  const int32_t tokens = TokensOf(state);
  const conformance::PagedBatch batch = TokenStep(state);
  conformance::Random random(2);
  BenchmarkCall call(RotaryKvWriteOp(), {kernel, ThreadsOf(state)});
  call.AddInput({tokens, 9, 64});
  call.AddInput({tokens, 3, 64});
  call.AddInput({tokens}, DType::kI32).FillUniform(random, 0, 2048);
  call.AddInput({32}).FillUniform(random, 0, 1);
  call.AddInput({tokens, 3, 64});
  call.AddInput({batch.num_blocks(), 2 * 3 * 64 * 16}, DType::kBF16);
  call.AddOutput({tokens, 9, 64});
  call.AddOutput({tokens, 3, 64});
  call.set_batch(&batch.view());
  call.Time(state);
  const int64_t written = int64_t{tokens} * 3 * 64;
  call.ReportBytes(state, int64_t{tokens} * 2 * 12 * 64 * 4 + written * (4 + 2 * 2));
}

[[maybe_unused]] const bool kRegistered = RegisterForTokenSteps("RotaryKvWrite", Run);

}  // namespace
}  // namespace pagemill::ops
