// Speed of `select_tokens` with the sizes of DeepSeek V3.2 and a bf16 cache. Its limit is the
// multiply-add peak (`of_peak`); 2 (R + P) operations for each head and visible token.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/select_tokens/select_tokens.h"
#include "cc/ops/select_tokens/token_case.h"

namespace pagemill::ops {
namespace {

constexpr conformance::TokenOptions kOptions{
    .heads = 64, .size = 64, .rope_size = 64, .choices = 2048};

void Decode(benchmark::State& state, const std::string& kernel) {
  const int32_t context = static_cast<int32_t>(state.range(1));
  conformance::TokenCase c(
      kOptions, std::vector<conformance::PagedRequest>(static_cast<size_t>(state.range(0)),
                                                       {.context = context - 1, .tokens = 1}));
  BenchmarkCall call(SelectTokensOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.Time(state, c.call());
  call.ReportOperations(state, static_cast<double>(state.range(0)) * context *
                                   static_cast<double>(kOptions.heads) * 2 *
                                   static_cast<double>(kOptions.size + kOptions.rope_size));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (benchmark::internal::Benchmark* b : RegisterForKernels("Decode", Decode)) {
    b->ArgNames({"requests", "context", "threads"})
        ->ArgsProduct({{1, 16}, {1024, 8192}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
