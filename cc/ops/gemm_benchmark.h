// File: cc/ops/gemm_benchmark.h
// GEMM benchmark cases: a single product, and all products of a model's step, with their own
// operands.
//
//   GemmBenchmarkCase gemm(LinearOp(), {.k = 576, .m = 1536}, {.dtype = DType::kQ4_1, .n = 8});
//   if (!gemm.runnable()) return state.SkipWithError("not on this machine");
//   for (auto _ : state) gemm.Run(pool);
//
// Benchmark code only. Thread safety: none.
#ifndef PAGEMILL_CC_OPS_GEMM_BENCHMARK_H_
#define PAGEMILL_CC_OPS_GEMM_BENCHMARK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/benchmark_call.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops {

struct MatrixShape {
  int64_t k;
  int64_t m;
};

struct GemmBenchmarkOptions {
  std::string kernel = {};  // name of a kernel; empty: the one chosen on this machine
  DType dtype = DType::kF32;  // of weights; u4: nvfp4
  int64_t n = 1;  // rows of x
  int32_t threads = 1;
  int64_t scale_block = 0;  // of i8 and f8_e4m3: rows and columns that share a scale; 0: a row
};

// y[n, m] = x[n, k] W[m, k]^T, without a bias. One of eight blocks of 32 of x is an outlier of its
// row, as in SmolLM2.
class GemmBenchmarkCase {
 public:
  GemmBenchmarkCase(const OpDefinition& op, const MatrixShape& shape,
                    const GemmBenchmarkOptions& options);
  GemmBenchmarkCase(const GemmBenchmarkCase&) = delete;

  bool runnable() const { return call_.has_value(); }
  // Requires runnable(); `pool` has at most `threads` threads.
  void Run(device::ThreadPool& pool) { call_->Run(pool); }
  KernelCall& call() { return *call_; }
  const TensorView& y() const { return y_.view(); }
  // As stored.
  std::span<const uint8_t> weights() const;
  // Multiplications and additions.
  double operations() const;

 private:
  void FillX(conformance::Random& random);

  conformance::TestTensor x_, w_, scales_, factor_, y_;
  QuantizedParts parts_;
  std::vector<TensorView> inputs_;
  TensorView outputs_[1];
  Attributes attributes_;
  std::optional<KernelCall> call_;
};

// The GEMMs of a step of SmolLM2-135M, each with its own weights: 30 layers of hidden size 576, 3
// key heads of 64, 1536 in the MLP, and the vocabulary projection, of all rows up to n = 32 and of
// one row above, since only the last token of a prompt is projected.
class SmolLM2Gemms {
 public:
  // `vocabulary` is the projection's dtype.
  SmolLM2Gemms(const OpDefinition& op, const GemmBenchmarkOptions& options, DType vocabulary);

  bool runnable() const;
  void Run(device::ThreadPool& pool);
  double weight_bytes() const;
  double operations() const;

 private:
  std::vector<std::unique_ptr<GemmBenchmarkCase>> gemms_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GEMM_BENCHMARK_H_
