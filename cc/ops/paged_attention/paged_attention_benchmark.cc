// Speed of `paged_attention`. Decode reads each request's context once, so its limit is reading
// those bytes (`of_read`); 960 requests of 320 keys are as much as 30 layers read for 32 requests,
// more than any cache holds (GLIBC_TUNABLES=glibc.malloc.hugetlb=1 puts them on large pages, as the
// executor does). Prefill multiplies, and its limit is the multiply-add peak (`of_peak`; 4
// D operations for each query head and visible key).
#include <benchmark/benchmark.h>

#include <string>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/paged_attention/attention_case.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

struct Heads {
  int64_t q, kv, dim;
};
// SmolLM2-135M; an 8 B Llama; Gemma 3 270M; heads without sharing of KV heads; then other head
// sizes.
constexpr Heads kHeads[] = {{9, 3, 64}, {32, 8, 128}, {4, 1, 256}, {8, 8, 64},  {9, 3, 32},
                            {9, 3, 80}, {9, 3, 96},   {9, 3, 112}, {9, 3, 128}, {9, 3, 256}};

constexpr DType kCaches[] = {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4, DType::kK8V4};

conformance::AttentionOptions Options(const benchmark::State& state) {
  const Heads& heads = kHeads[state.range(3)];
  return {.q_heads = heads.q,
          .kv_heads = heads.kv,
          .head_dim = heads.dim,
          .dtype = kCaches[state.range(4)]};
}

void Decode(benchmark::State& state, const std::string& kernel) {
  const conformance::PagedRequest request{.context = static_cast<int32_t>(state.range(1)) - 1,
                                          .tokens = 1};
  conformance::AttentionCase c(Options(state),
                               std::vector<conformance::PagedRequest>(state.range(0), request));
  BenchmarkCall call(PagedAttentionOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.Time(state, c.call());
  call.ReportBytes(state, c.visible_bytes());
}

// Requests that decode after a common prefix of `common` tokens and 64 further tokens, with and
// without num_common_blocks set.
void DecodeShared(benchmark::State& state, const std::string& kernel) {
  const int32_t common = static_cast<int32_t>(state.range(1));
  const Heads& heads = kHeads[state.range(3)];
  const conformance::PagedRequest request{.context = common + 63, .tokens = 1};
  conformance::AttentionCase c({.q_heads = heads.q,
                                .kv_heads = heads.kv,
                                .head_dim = heads.dim,
                                .common_blocks = common / 16},
                               std::vector<conformance::PagedRequest>(state.range(0), request));
  if (state.range(4) == 0) c.HideSharing();
  BenchmarkCall call(PagedAttentionOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.Time(state, c.call());
}

void Prefill(benchmark::State& state, const std::string& kernel) {
  const int32_t prompt = static_cast<int32_t>(state.range(1));
  const conformance::AttentionOptions options = Options(state);
  conformance::AttentionCase c(options, std::vector<conformance::PagedRequest>(
                                            state.range(0), {.context = 0, .tokens = prompt}));
  BenchmarkCall call(PagedAttentionOp(), {kernel, static_cast<int32_t>(state.range(2))});
  call.Time(state, c.call());
  const double pairs = 0.5 * prompt * (prompt + 1.0) * static_cast<double>(state.range(0));
  call.ReportOperations(state, 4 * pairs * static_cast<double>(options.q_heads * options.head_dim));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const char* kernel :
       {"amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "portable"}) {
    const std::string name = kernel;
    benchmark::RegisterBenchmark(("Decode/" + name).c_str(), Decode, name)
        ->UseRealTime()
        ->ArgNames({"requests", "context", "threads", "heads", "cache"})
        ->ArgsProduct({{1, 32}, {128, 1024, 8192}, {1, 2}, {0}, {0, 1, 2, 3, 4}})
        ->ArgsProduct({{32, 960}, {320}, {1, 2}, {0}, {0, 1, 2, 3, 4}})
        ->ArgsProduct({{1}, {1024}, {1, 2}, {1, 2}, {0, 1, 3, 4}})
        ->ArgsProduct({{1}, {1024}, {1}, {4, 5, 6, 7, 8, 9}, {0, 1, 2, 3, 4}});
    benchmark::RegisterBenchmark(("DecodeShared/" + name).c_str(), DecodeShared, name)
        ->UseRealTime()
        ->ArgNames({"requests", "common", "threads", "heads", "told"})
        ->ArgsProduct({{32}, {512, 2048}, {1, 2}, {0, 1, 3}, {0, 1}});
    benchmark::RegisterBenchmark(("Prefill/" + name).c_str(), Prefill, name)
        ->UseRealTime()
        ->ArgNames({"requests", "prompt", "threads", "heads", "cache"})
        ->ArgsProduct({{1}, {128, 1024}, {1, 2}, {0}, {0, 1, 2, 3, 4}})
        ->ArgsProduct({{1}, {1024}, {1}, {1, 2}, {0, 1, 3, 4}})
        ->ArgsProduct({{1}, {1024}, {1}, {4, 5, 6, 7, 8, 9}, {0, 1, 2, 3, 4}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
