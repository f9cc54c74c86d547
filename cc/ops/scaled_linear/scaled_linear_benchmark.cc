// Speed of `scaled_linear` on all matrices of SmolLM2-135M, beside `linear` on the same matrices in
// bf16 and Q8_0, in one process. Counters: tok/s, what a model could reach if it were nothing else;
// GB/s of weights; Gop/s (a multiplication and an addition are two).
//
//   scaled_linear_benchmark --benchmark_filter='n:1/'
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/scaled_linear/scaled_linear.h"

namespace pagemill::ops {
namespace {

using benchmark::Counter;
using conformance::Random;
using conformance::TestTensor;
using device::ThreadPool;

struct Shape {
  int64_t k;
  int64_t m;
};

struct Format {
  const char* kernel;
  DType dtype;
  int64_t block = 0;  // rows and columns that share a scale; 0: a row
};

bool IsScaled(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

// A call with operands of its own; without a scale where the format has none.
class Problem {
 public:
  Problem(const Shape& shape, const Format& format, int64_t n, int32_t threads)
      : x_(DType::kF32, {n, shape.k}),
        w_(format.dtype, {shape.m, shape.k}),
        scales_(DType::kF32, {ScaleRows(shape, format), ScaleColumns(shape, format)}),
        y_(DType::kF32, {n, shape.m}) {
    Random random(1);
    x_.FillUniform(random, -1, 1);
    w_.FillUniform(random, -100, 100);
    scales_.FillUniform(random, 0.001f, 0.01f);
    inputs_ = {x_.view(), w_.view()};
    const bool scaled = IsScaled(format.dtype);
    if (scaled) inputs_.push_back(scales_.view());
    if (format.block != 0) {
      attributes_.Set("block_rows", static_cast<double>(format.block));
      attributes_.Set("block_columns", static_cast<double>(format.block));
    }
    outputs_[0] = y_.view();
    call_ = {inputs_, outputs_, &attributes_, nullptr};
    const auto row = ChooseKernel(scaled ? ScaledLinearOp() : LinearOp(),
                                  device::DetectCapabilities(), call_, {.name = format.kernel});
    if (!row.ok()) return;
    row_ = *row;
    ThreadPool alone({.num_threads = 1});
    packed_ = std::make_unique<conformance::PackedCall>(*row_, call_, alone);
    if (row_->workspace_bytes != nullptr) {
      workspace_.resize(row_->workspace_bytes(packed_->call(), threads) + 64);
    }
  }
  Problem(const Problem&) = delete;

  bool runnable() const { return row_ != nullptr; }
  void Run(ThreadPool& pool) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(workspace_.data());
    std::byte* aligned = workspace_.data() + (64 - address % 64) % 64;
    KernelContext context{&pool, {aligned, workspace_.size()}};
    row_->run(packed_->call(), context);
  }
  double bytes() const {
    return static_cast<double>(w_.view().shape[0] * w_.view().row_stride_bytes);
  }
  double operations() const {
    return 2.0 * static_cast<double>(x_.view().Elements()) * w_.view().shape[0];
  }

 private:
  static int64_t ScaleRows(const Shape& s, const Format& f) {
    return f.block == 0 ? s.m : (s.m + f.block - 1) / f.block;
  }
  static int64_t ScaleColumns(const Shape& s, const Format& f) {
    return f.block == 0 ? 1 : (s.k + f.block - 1) / f.block;
  }

  TestTensor x_, w_, scales_, y_;
  std::vector<TensorView> inputs_;
  TensorView outputs_[1];
  Attributes attributes_;
  OpCall call_;
  const KernelRow* row_ = nullptr;
  std::unique_ptr<conformance::PackedCall> packed_;
  std::vector<std::byte> workspace_;
};

// The matrices of one token: layers of hidden 576, 3 key heads of 64, 1536 in the MLP, and the
// vocabulary projection.
void RunSmolLM2(benchmark::State& state, const Format& format) {
  const int64_t n = state.range(0);
  const int32_t threads = static_cast<int32_t>(state.range(1));
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  std::vector<std::unique_ptr<Problem>> problems;
  const Shape layer[] = {{576, 576},  {576, 192},  {576, 192}, {576, 576},
                         {576, 1536}, {576, 1536}, {1536, 576}};
  for (int i = 0; i < 30; ++i) {
    for (const Shape& s : layer) {
      problems.push_back(std::make_unique<Problem>(s, format, n, threads));
    }
  }
  // Only the last token of a prompt is projected.
  problems.push_back(
      std::make_unique<Problem>(Shape{576, 49152}, format, n <= 32 ? n : 1, threads));
  if (!problems[0]->runnable()) return state.SkipWithError("not on this machine");
  double bytes = 0;
  double operations = 0;
  for (const auto& problem : problems) {
    bytes += problem->bytes();
    operations += problem->operations();
  }
  for (auto _ : state) {
    for (const auto& problem : problems) problem->Run(pool);
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["tok/s"] = Counter(static_cast<double>(n) * runs, Counter::kIsRate);
  state.counters["GB/s"] = Counter(bytes * runs / 1e9, Counter::kIsRate);
  state.counters["Gop/s"] = Counter(operations * runs / 1e9, Counter::kIsRate);
}

// All combinations as benchmarks; google benchmark keeps them.
[[maybe_unused]] const bool kRegistered = [] {
  const Format formats[] = {{"avx512_bf16", DType::kBF16},
                            {"avx512_vnni", DType::kQ8_0},
                            {"avx512_vnni_int16", DType::kQ8_0},
                            {"avx512_vnni", DType::kI8},
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
