#include "cc/ops/benchmark_call.h"

#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/machine_limits.h"

namespace pagemill::ops {
namespace {

using benchmark::Counter;

int64_t ViewBytes(const TensorView& view) {
  return view.shape[0] * RowBytes(view.dtype, view.RowElements());
}

}  // namespace

KernelCall::KernelCall(const Kernel& kernel, const OpCall& call, int32_t threads) : row_(kernel) {
  device::ThreadPool alone({.num_threads = 1});
  packed_ = std::make_unique<conformance::PackedCall>(kernel, call, alone);
  const bool has_workspace = kernel.workspace_bytes != nullptr;
  workspace_.resize((has_workspace ? kernel.workspace_bytes(packed_->call(), threads) : 0) + 64);
  if (kernel.plan == nullptr) return;
  plan_.resize(static_cast<size_t>(kernel.plan->bytes(packed_->call())));
  kernel.plan->make(packed_->call(), plan_);
}

KernelContext KernelCall::Context(device::ThreadPool& pool) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(workspace_.data());
  return {.pool = &pool,
          .workspace = {workspace_.data() + (64 - address % 64) % 64, workspace_.size() - 64},
          .plan = plan_.data()};
}

void KernelCall::Run(device::ThreadPool& pool) {
  KernelContext context = Context(pool);
  row_.run(call(), context);
}

BenchmarkCall::BenchmarkCall(const OpDefinition& op, const BenchmarkCallOptions& options)
    : op_(op), options_(options), pool_({.num_threads = options.threads, .spin_us = 1000}) {}

conformance::TestTensor& BenchmarkCall::AddInput(std::initializer_list<int64_t> dims, DType dtype) {
  conformance::TestTensor& tensor = tensors_.emplace_back(dtype, dims);
  tensor.FillUniform(random_, -2, 2);
  inputs_.push_back(tensor.view());
  return tensor;
}

void BenchmarkCall::AddOutput(std::initializer_list<int64_t> dims) {
  outputs_.push_back(tensors_.emplace_back(DType::kF32, dims).view());
}

void BenchmarkCall::Time(benchmark::State& state) {
  Time(state,
       {.inputs = inputs_, .outputs = outputs_, .attributes = &attributes_, .batch = batch_});
}

void BenchmarkCall::Time(benchmark::State& state, const OpCall& call) {
  const Status fits = op_.check(call);
  if (!fits.ok()) return state.SkipWithError(fits.message().c_str());
  const auto kernel =
      ChooseKernel(op_, device::DetectCapabilities(), call, {.name = options_.kernel});
  if (!kernel.ok()) return state.SkipWithError("the op or this machine has no such kernel");
  KernelCall on_kernel(**kernel, call, options_.threads);
  for (auto _ : state) on_kernel.Run(pool_);
}

int64_t BenchmarkCall::OperandBytes() const {
  int64_t bytes = 0;
  for (const TensorView& view : inputs_) bytes += ViewBytes(view);
  for (const TensorView& view : outputs_) bytes += ViewBytes(view);
  return bytes;
}

void BenchmarkCall::ReportBytes(benchmark::State& state, int64_t bytes) {
  const std::vector<uint8_t> buffer(bytes, 1);
  const double limit = device::MeasureReadBandwidth(device::DetectCapabilities(), buffer, pool_);
  const double total = static_cast<double>(bytes) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(total / 1e9, Counter::kIsRate);
  state.counters["of_read"] = Counter(total / limit, Counter::kIsRate);
}

void BenchmarkCall::ReportOperations(benchmark::State& state, double operations) {
  const double limit = device::MeasureFlops(device::DetectCapabilities(), pool_);
  const double total = operations * static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = Counter(total / 1e9, Counter::kIsRate);
  state.counters["of_peak"] = Counter(total / limit, Counter::kIsRate);
}

std::vector<benchmark::internal::Benchmark*> RegisterForKernels(
    const std::string& name, void (*body)(benchmark::State& state, const std::string& kernel)) {
  std::vector<benchmark::internal::Benchmark*> registered;
  for (const char* kernel : {"avx512", "avx2", "portable"}) {
    registered.push_back(
        benchmark::RegisterBenchmark((name + "/" + kernel).c_str(), body, std::string(kernel))
            ->UseRealTime());
  }
  return registered;
}

}  // namespace pagemill::ops
