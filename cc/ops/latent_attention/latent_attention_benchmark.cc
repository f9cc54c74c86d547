// Speed of `latent_attention` with the sizes of DeepSeek-V2-Lite and caches in bf16 and fp8. With
// 16 heads to a token of the context its limit is the multiply-add peak (`of_peak`); 2 (2 R + P)
// operations for each head and visible token.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/latent_attention/latent_attention.h"
#include "cc/ops/latent_attention/latent_case.h"

namespace pagemill::ops {
namespace {

constexpr conformance::LatentOptions kOptions{
    .heads = 16, .size = 512, .rope_size = 64, .bf16_elements = 64};
constexpr DType kCaches[] = {DType::kBF16, DType::kF8E4M3};

void Time(benchmark::State& state, const std::string& kernel,
          const std::vector<conformance::PagedRequest>& requests) {
  conformance::LatentOptions options = kOptions;
  options.dtype = kCaches[state.range(3)];
  state.SetLabel(std::string(Info(options.dtype).name));
  conformance::LatentCase c(options, requests);
  BenchmarkCall call(LatentAttentionOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.Time(state, c.call());
  double visible = 0;
  for (const conformance::PagedRequest& r : requests) {
    visible += r.tokens * (r.context + 0.5 * (r.tokens + 1));
  }
  call.ReportOperations(state, visible * static_cast<double>(kOptions.heads) * 2 *
                                   static_cast<double>(2 * kOptions.size + kOptions.rope_size));
}

void Decode(benchmark::State& state, const std::string& kernel) {
  const int32_t context = static_cast<int32_t>(state.range(1));
  Time(state, kernel,
       std::vector<conformance::PagedRequest>(static_cast<size_t>(state.range(0)),
                                              {.context = context - 1, .tokens = 1}));
}

void Prefill(benchmark::State& state, const std::string& kernel) {
  const int32_t prompt = static_cast<int32_t>(state.range(1));
  Time(state, kernel,
       std::vector<conformance::PagedRequest>(static_cast<size_t>(state.range(0)),
                                              {.context = 0, .tokens = prompt}));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (benchmark::internal::Benchmark* b : RegisterForKernels("Decode", Decode)) {
    b->ArgNames({"requests", "context", "threads", "cache"})
        ->ArgsProduct({{1, 32}, {128, 1024, 8192}, {1, 2}, {0, 1}});
  }
  for (benchmark::internal::Benchmark* b : RegisterForKernels("Prefill", Prefill)) {
    b->ArgNames({"requests", "prompt", "threads", "cache"})
        ->ArgsProduct({{1}, {128, 1024}, {1, 2}, {0, 1}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
