// Speed of `grouped_linear` next to the machine's limits, measured in the same run: the gate and up
// projections of one layer, in one call, with random experts for each token. `of_read` is the share
// of the read bandwidth that reading each expert with rows once would take, `of_peak` that of the
// kernel's multiply-add peak; `experts` is the number of experts with rows. `vs_linear` is the time
// of `linear` on as many rows of a single matrix with as many outputs, over this op's: the cost of
// sorting and of experts with few rows.
//
//   grouped_linear_benchmark --benchmark_filter='bf16/128x768x2048'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/machine_limits.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/benchmark_call.h"
#include "cc/ops/conformance.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/linear.h"

namespace pagemill::ops {
namespace {

using benchmark::Counter;
using conformance::TestTensor;
using device::ThreadPool;

struct Experts {
  int64_t count;
  int64_t choices;
  int64_t m;
  int64_t k;
};

// Distinct experts for each token.
std::vector<int32_t> RandomIds(const Experts& e, int64_t tokens, conformance::Random& random) {
  std::vector<int32_t> ids, all(static_cast<size_t>(e.count));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < e.choices; ++j) {
      std::swap(all[static_cast<size_t>(j)], all[static_cast<size_t>(random.Int(j, e.count - 1))]);
      ids.push_back(all[static_cast<size_t>(j)]);
    }
  }
  return ids;
}

// Two stacks, and one of their matrices for `linear`.
struct Operands {
  Operands(const Experts& e, DType dtype, int64_t tokens)
      : x(DType::kF32, {tokens, e.k}),
        ids(DType::kI32, {tokens, e.choices}),
        gate(dtype, {e.count, e.m, e.k}),
        up(dtype, {e.count, e.m, e.k}),
        gate_y(DType::kF32, {tokens, e.choices, e.m}),
        up_y(DType::kF32, {tokens, e.choices, e.m}),
        rows(DType::kF32, {tokens * e.choices, e.k}) {
    conformance::Random random(1);
    x.FillUniform(random, -1, 1);
    rows.FillUniform(random, -1, 1);
    gate.FillUniform(random, -1, 1);
    up.FillUniform(random, -1, 1);
    const std::vector<int32_t> chosen = RandomIds(e, tokens, random);
    ids.SetInt(chosen);
    num_experts = static_cast<int64_t>(std::set<int32_t>(chosen.begin(), chosen.end()).size());
  }

  TestTensor x, ids, gate, up, gate_y, up_y, rows;
  int64_t num_experts = 0;
};

double SecondsOf(KernelCall& call, ThreadPool& pool) {
  const auto start = std::chrono::steady_clock::now();
  call.Run(pool);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double PeakOf(std::string_view kernel, ThreadPool& pool) {
  const device::Capabilities caps = device::DetectCapabilities();
  for (const char* bf16 : {"avx512_bf16", "amx_bf16"}) {
    const char* const operands = kernel == "amx_bf16" ? "L1" : "registers";
    if (kernel == bf16) return *device::MeasurePeak(caps, {bf16, "bf16", operands}, pool);
  }
  return device::MeasureFlops(caps, pool);
}

void Run(benchmark::State& state, DType dtype, const Experts& e) {
  const int64_t tokens = state.range(0);
  const int32_t threads = static_cast<int32_t>(state.range(1));
  const device::Capabilities caps = device::DetectCapabilities();
  ThreadPool pool({.num_threads = threads, .spin_us = 1000});
  Operands o(e, dtype, tokens);
  const TensorView inputs[] = {o.x.view(), o.ids.view(), o.gate.view(), {}, o.up.view(), {}};
  const TensorView outputs[] = {o.gate_y.view(), o.up_y.view()};
  const Attributes attributes;
  const OpCall call = {inputs, outputs, &attributes, nullptr};
  const KernelLimits limits = {.activations = Precision::kMixedBlock};
  KernelCall grouped(**ChooseKernel(GroupedLinearOp(), caps, call, limits), call, threads);

  const int64_t rows = tokens * e.choices;
  const auto matrix = [&](const TestTensor& stack) {
    return grouped_linear::ExpertView(stack.view(), 0);
  };
  const auto flat = [&](const TestTensor& y) {
    return TensorView::Dense(y.view().data, DType::kF32, {rows, e.m});
  };
  const TensorView linear_inputs[] = {o.rows.view(), matrix(o.gate), {}, matrix(o.up), {}};
  const TensorView linear_outputs[] = {flat(o.gate_y), flat(o.up_y)};
  const OpCall linear_call = {linear_inputs, linear_outputs, &attributes, nullptr};
  KernelCall linear(**ChooseKernel(LinearOp(), caps, linear_call, limits), linear_call, threads);

  double grouped_s = 0, linear_s = 0;
  for (auto _ : state) {
    const double seconds = SecondsOf(grouped, pool);
    state.SetIterationTime(seconds);
    grouped_s += seconds;
    linear_s += SecondsOf(linear, pool);
  }
  const double runs = static_cast<double>(state.iterations());
  const double bytes = 2.0 * static_cast<double>(o.num_experts * e.m * RowBytes(dtype, e.k));
  const std::vector<uint8_t> buffer(static_cast<size_t>(bytes), 1);
  const double read = device::MeasureReadBandwidth(caps, buffer, pool);
  const double operations = 4.0 * static_cast<double>(rows * e.m * e.k);
  state.SetLabel(std::string(grouped.kernel().name));
  state.counters["experts"] = static_cast<double>(o.num_experts);
  state.counters["of_read"] = bytes * runs / grouped_s / read;
  state.counters["of_peak"] = operations * runs / grouped_s / PeakOf(grouped.kernel().name, pool);
  state.counters["vs_linear"] = linear_s / grouped_s;
}

[[maybe_unused]] const bool kRegistered = [] {
  // Qwen3-30B-A3B; Mixtral 8x7B with a quarter of its width.
  for (const Experts& e : {Experts{128, 8, 768, 2048}, Experts{8, 2, 3584, 4096}}) {
    for (DType dtype : {DType::kBF16, DType::kQ4_1}) {
      const std::string name = "GroupedLinear/" + std::string(Info(dtype).name) + "/" +
                               std::to_string(e.count) + "x" + std::to_string(e.m) + "x" +
                               std::to_string(e.k);
      benchmark::RegisterBenchmark(name.c_str(), Run, dtype, e)
          ->ArgNames({"tokens", "threads"})
          ->ArgsProduct({{1, 32, 512}, {1, 2}})
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
