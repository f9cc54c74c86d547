// File: cc/ops/benchmark_call.h
// Benchmark harness of ops: a call with its own operands on a named kernel, and a report of bytes
// or operations per second next to the machine's limit, measured in the same process.
//
//   BenchmarkCall call(RmsNormOp(), {.kernel = "avx512", .threads = 2});
//   call.AddInput({rows, 576});
//   call.AddInput({576});
//   call.AddOutput({rows, 576});
//   call.attributes().Set("eps", 1e-5);
//   call.Time(state);                       // skips if the machine lacks the kernel
//   call.ReportBytes(state, call.OperandBytes());
//
// Benchmark code only.
#ifndef PAGEMILL_CC_OPS_BENCHMARK_CALL_H_
#define PAGEMILL_CC_OPS_BENCHMARK_CALL_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// Runs a call on one kernel repeatedly: holds the weights in the kernel's packing and a workspace
// for up to `threads` threads. The operands of `call` must outlive it.
class KernelCall {
 public:
  KernelCall(const Kernel& kernel, const OpCall& call, int32_t threads);

  const Kernel& kernel() const { return row_; }
  const OpCall& call() const { return packed_->call(); }
  KernelContext Context(device::ThreadPool& pool);
  void Run(device::ThreadPool& pool);

 private:
  const Kernel& row_;
  std::unique_ptr<conformance::PackedCall> packed_;
  std::vector<std::byte> workspace_;
  std::vector<std::byte> plan_;  // of the kernel's BatchPlan
};

struct BenchmarkCallOptions {
  std::string kernel;  // name of a kernel
  int32_t threads = 1;
};

class BenchmarkCall {
 public:
  BenchmarkCall(const OpDefinition& op, const BenchmarkCallOptions& options);
  BenchmarkCall(const BenchmarkCall&) = delete;

  // Uniform in [-2, 2); lives as long as the call.
  conformance::TestTensor& AddInput(std::initializer_list<int64_t> dims, DType dtype = DType::kF32);
  void AddOutput(std::initializer_list<int64_t> dims);
  Attributes& attributes() { return attributes_; }
  void set_batch(const BatchView* batch) { batch_ = batch; }
  // Times `call` rather than the operands added here.
  void Time(benchmark::State& state, const OpCall& call);
  void Time(benchmark::State& state);

  // Bytes of all inputs and outputs.
  int64_t OperandBytes() const;
  // Counters "GB/s" and "of_read": the share of the bandwidth of reading a buffer of `bytes`.
  void ReportBytes(benchmark::State& state, int64_t bytes);
  // Counters "GFLOP/s" and "of_peak": the share of the multiply-add peak.
  void ReportOperations(benchmark::State& state, double operations);

 private:
  const OpDefinition& op_;
  BenchmarkCallOptions options_;
  device::ThreadPool pool_;
  conformance::Random random_{1};
  std::deque<conformance::TestTensor> tensors_;
  std::vector<TensorView> inputs_, outputs_;
  Attributes attributes_;
  const BatchView* batch_ = nullptr;
};

// Registers `body(state, kernel)` for the kernels "avx512", "avx2" and "portable" as
// "<name>/<kernel>", with real time; returns them for arguments to be added.
std::vector<benchmark::internal::Benchmark*> RegisterForKernels(
    const std::string& name, void (*body)(benchmark::State& state, const std::string& kernel));

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BENCHMARK_CALL_H_
