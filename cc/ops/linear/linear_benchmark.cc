// Speed of `linear` at the shapes of real models, next to the machine's limits measured in the same
// run. Counters: GB/s of weights and its share of the read bandwidth (`of_read`) for small N;
// GFLOP/s and its share of the multiply-add peak (`of_peak`) for large N; `tok/s` for one pass over
// all matrices of SmolLM2-135M: an upper bound of the model's speed.
//
//   linear_benchmark --benchmark_filter=SmolLM2        (the whole model)
//   linear_benchmark --benchmark_filter='Shape/avx512/q4_1/576x49152/n:1/'
//   linear_benchmark --benchmark_filter=Greedy         (projections, by logits and by maxima)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/machine_limits.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/gemm_benchmark.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/sample.h"

namespace pagemill::ops::linear {
namespace {

using device::MeasureFlops;
using device::MeasureReadBandwidth;
using device::ThreadPool;

// Finds the column of the largest element of each row of y: by writing y and reading it, or without
// writing y.
void RunLogits(GemmBenchmarkCase& gemm, ThreadPool& pool, const RowPasses& passes) {
  gemm.Run(pool);
  const TensorView& y = gemm.y();
  pool.ParallelFor(y.shape[0], 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const std::span<const float> logits(y.Row<const float>(n), y.RowElements());
      benchmark::DoNotOptimize(ArgMax(passes, logits));
    }
  });
}

void RunMaxima(GemmBenchmarkCase& gemm, ThreadPool& pool, std::vector<RowMaximum>* maxima) {
  KernelCall& call = gemm.call();
  KernelContext context = call.Context(pool);
  RunRowMaxima(call.kernel(), call.call(), context, gemm.y().RowElements(), maxima->data());
  benchmark::DoNotOptimize((*maxima)[0]);
}

using benchmark::Counter;

// Peak of the instructions of this kernel, for all threads of the pool together. Kernels of 15-bit
// activations need two instructions per product, so they can reach half of it. For kernels without
// a measured peak: that of float multiply-adds.
double PeakOf(const std::string& kernel, ThreadPool& pool) {
  const device::Capabilities caps = device::DetectCapabilities();
  if (kernel == "avx512_bf16" || (kernel == "onednn" && !caps.cpu.amx_bf16)) {
    return *device::MeasurePeak(caps, {"avx512_bf16", "bf16", "registers"}, pool);
  }
  if (kernel == "amx_bf16" || kernel == "onednn") {
    return *device::MeasurePeak(caps, {"amx_bf16", "bf16", "L1"}, pool);
  }
  if (kernel.starts_with("avx2_int")) {
    return *device::MeasurePeak(caps, {"avx2_int8", "int8", "registers"}, pool);
  }
  if (kernel.starts_with("avx_vnni")) {
    return *device::MeasurePeak(caps, {"avx_vnni", "int8", "registers"}, pool);
  }
  return MeasureFlops(caps, pool);
}

void RunShape(benchmark::State& state, const std::string& kernel, DType dtype, MatrixShape shape) {
  const int64_t n = state.range(0);
  const int32_t threads = static_cast<int32_t>(state.range(1));
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  GemmBenchmarkCase gemm(LinearOp(), shape, {kernel, dtype, n, threads});
  if (!gemm.runnable()) return state.SkipWithError("not on this machine");
  for (auto _ : state) gemm.Run(pool);
  const double runs = static_cast<double>(state.iterations());
  if (n <= 4) {
    const double bytes = static_cast<double>(gemm.weights().size());
    const double limit = MeasureReadBandwidth(device::DetectCapabilities(), gemm.weights(), pool);
    state.counters["GB/s"] = Counter(bytes * runs / 1e9, Counter::kIsRate);
    state.counters["of_read"] = Counter(bytes * runs / limit, Counter::kIsRate);
  } else {
    const double limit = PeakOf(kernel, pool);
    state.counters["GFLOP/s"] = Counter(gemm.operations() * runs / 1e9, Counter::kIsRate);
    state.counters["of_peak"] = Counter(gemm.operations() * runs / limit, Counter::kIsRate);
  }
}

// A GGUF file of Q4_1 stores the vocabulary projection as Q8_0.
void RunSmolLM2(benchmark::State& state, const std::string& kernel, DType dtype) {
  const int64_t n = state.range(0);
  const int32_t threads = static_cast<int32_t>(state.range(1));
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  SmolLM2Gemms gemms(LinearOp(), {kernel, dtype, n, threads},
                     dtype == DType::kQ4_1 ? DType::kQ8_0 : dtype);
  if (!gemms.runnable()) return state.SkipWithError("not on this machine");
  for (auto _ : state) gemms.Run(pool);
  const double runs = static_cast<double>(state.iterations());
  const double bytes = gemms.weight_bytes();
  state.counters["tok/s"] = Counter(static_cast<double>(n) * runs, Counter::kIsRate);
  const std::vector<uint8_t> model(static_cast<size_t>(bytes), 1);
  state.counters["of_read"] =
      Counter(bytes * runs / MeasureReadBandwidth(device::DetectCapabilities(), model, pool),
              Counter::kIsRate);
  state.counters["of_peak"] =
      Counter(gemms.operations() * runs / PeakOf(kernel, pool), Counter::kIsRate);
}

// A projection to a vocabulary and the choice of the most likely token, alternating between logits
// and maxima: medians of processor time of all threads.
void RunGreedy(benchmark::State& state, DType dtype, MatrixShape shape) {
  const device::Capabilities caps = device::DetectCapabilities();
  const int32_t threads = static_cast<int32_t>(state.range(1));
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  GemmBenchmarkCase gemm(LinearOp(), shape,
                         {.dtype = dtype, .n = state.range(0), .threads = threads});
  if (!gemm.runnable()) return state.SkipWithError("not on this machine");
  const RowPasses& passes = ChooseRowPasses(caps);
  std::vector<RowMaximum> maxima(static_cast<size_t>(state.range(0)));
  std::vector<double> logits_ms, maxima_ms;
  const auto time = [](const auto& run, std::vector<double>* times) {
    const std::clock_t start = std::clock();
    run();
    times->push_back(1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  };
  for (auto _ : state) {
    time([&] { RunLogits(gemm, pool, passes); }, &logits_ms);
    time([&] { RunMaxima(gemm, pool, &maxima); }, &maxima_ms);
  }
  const auto median = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  };
  state.counters["logits_ms"] = median(logits_ms);
  state.counters["maxima_ms"] = median(maxima_ms);
  state.counters["ratio"] = median(maxima_ms) / median(logits_ms);
}

// All combinations as benchmarks; google benchmark keeps them.
[[maybe_unused]] const bool kRegistered = [] {
  for (DType dtype : {DType::kQ8_0, DType::kBF16}) {
    for (const MatrixShape& shape : {MatrixShape{576, 49152}, MatrixShape{896, 151936}}) {
      const std::string name = "Greedy/" + std::string(Info(dtype).name) + "/" +
                               std::to_string(shape.k) + "x" + std::to_string(shape.m);
      benchmark::RegisterBenchmark(name.c_str(), RunGreedy, dtype, shape)
          ->ArgNames({"n", "threads"})
          ->ArgsProduct({{1, 8, 32}, {1, 2}})
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  // Matrices of SmolLM2-135M, and of Qwen2.5 with 0.5 and 1.5 B.
  const MatrixShape shapes[] = {{576, 576},  {576, 192},  {576, 1536},  {1536, 576},  {576, 49152},
                                {896, 4864}, {4864, 896}, {1536, 1536}, {1536, 8960}, {8960, 1536}};
  for (const char* kernel : {"avx512_vnni",
                             "avx512_vnni_int16",
                             "avx512_vnni_mixed",
                             "amx_bf16",
                             "avx512_bf16",
                             "onednn",
                             "avx512",
                             "avx_vnni_int8",
                             "avx_vnni_mixed",
                             "avx2_int8",
                             "avx2_int8_mixed",
                             "avx2",
                             "asimd_i8mm",
                             "asimd_i8mm_int16",
                             "asimd_dotprod",
                             "asimd_dotprod_int16",
                             "asimd_bf16",
                             "vxe_int8",
                             "vxe_int16",
                             "portable"}) {
    std::vector<DType> dtypes(std::begin(kWeightDTypes), std::end(kWeightDTypes));
    dtypes.push_back(DType::kQ3_K);
    for (DType dtype : dtypes) {
      for (const MatrixShape& shape : shapes) {
        // For formats with blocks of 256, rows of 576, 1536, ... are rounded to a multiple of 256.
        MatrixShape s = shape;
        if (Info(dtype).block_elements == 256) s.k = (s.k + 255) / 256 * 256;
        const std::string name = "Shape/" + std::string(kernel) + "/" +
                                 std::string(Info(dtype).name) + "/" + std::to_string(s.k) + "x" +
                                 std::to_string(s.m);
        benchmark::RegisterBenchmark(name.c_str(), RunShape, std::string(kernel), dtype, s)
            ->ArgNames({"n", "threads"})
            ->ArgsProduct({{1, 2, 4, 8, 32, 128, 512, 1024}, {1, 2}})
            ->UseRealTime();
      }
    }
    for (DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kMxfp4, DType::kU4, DType::kBF16}) {
      const std::string format = dtype == DType::kU4 ? "nvfp4" : std::string(Info(dtype).name);
      const std::string name = "SmolLM2/" + std::string(kernel) + "/" + format;
      benchmark::RegisterBenchmark(name.c_str(), RunSmolLM2, std::string(kernel), dtype)
          ->ArgNames({"n", "threads"})
          ->ArgsProduct({{1, 2, 4, 6, 8, 32, 128, 512}, {1, 2}})
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops::linear
