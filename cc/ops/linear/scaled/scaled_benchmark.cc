// Speed of scaled weights on all matrices of SmolLM2-135M, next to the same matrices in bf16 and
// Q8_0, in one process. Counters: tok/s, an upper bound of the model's speed; GB/s of weights;
// Gop/s (a multiplication and an addition are two).
//
//   scaled_benchmark --benchmark_filter='n:1/'
#include <benchmark/benchmark.h>

#include <string>

#include "cc/device/thread_pool.h"
#include "cc/ops/gemm_benchmark.h"
#include "cc/ops/linear/linear.h"

namespace pagemill::ops {
namespace {

using benchmark::Counter;
using device::ThreadPool;

struct Format {
  const char* kernel;
  DType dtype;
  int64_t block = 0;  // rows and columns that share a scale; 0: a row
};

void RunSmolLM2(benchmark::State& state, const Format& format) {
  const int64_t n = state.range(0);
  const int32_t threads = static_cast<int32_t>(state.range(1));
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  SmolLM2Gemms gemms(LinearOp(), {format.kernel, format.dtype, n, threads, format.block},
                     format.dtype);
  if (!gemms.runnable()) return state.SkipWithError("not on this machine");
  for (auto _ : state) gemms.Run(pool);
  const double runs = static_cast<double>(state.iterations());
  state.counters["tok/s"] = Counter(static_cast<double>(n) * runs, Counter::kIsRate);
  state.counters["GB/s"] = Counter(gemms.weight_bytes() * runs / 1e9, Counter::kIsRate);
  state.counters["Gop/s"] = Counter(gemms.operations() * runs / 1e9, Counter::kIsRate);
}

// All combinations as benchmarks; google benchmark keeps them.
[[maybe_unused]] const bool kRegistered = [] {
  const Format formats[] = {{"amx_bf16", DType::kBF16},
                            {"avx512_bf16", DType::kBF16},
                            {"avx512_vnni", DType::kQ8_0},
                            {"avx512_vnni_int16", DType::kQ8_0},
                            {"amx_int8", DType::kI8},
                            {"avx512_vnni", DType::kI8},
                            {"amx_bf16", DType::kF8E4M3},
                            {"amx_bf16", DType::kF8E4M3, 128},
                            {"avx512_bf16", DType::kF8E4M3},
                            {"avx512_bf16", DType::kF8E4M3, 128},
                            {"avx512", DType::kI8},
                            {"avx512", DType::kF8E4M3},
                            {"avx2", DType::kI8},
                            {"avx2", DType::kF8E4M3},
                            {"portable", DType::kI8},
                            {"portable", DType::kF8E4M3}};
  for (const Format& format : formats) {
    const std::string name = "SmolLM2/" + std::string(format.kernel) + "/" +
                             std::string(Info(format.dtype).name) +
                             (format.block == 0 ? "" : "_blocks");
    benchmark::RegisterBenchmark(name.c_str(), RunSmolLM2, format)
        ->ArgNames({"n", "threads"})
        ->ArgsProduct({{1, 4, 8, 32, 512}, {1, 2}})
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime();
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
