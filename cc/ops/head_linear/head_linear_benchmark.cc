// Speed of `head_linear` with the sizes of DeepSeek-V2-Lite: 16 heads, 128 elements to a latent of
// 512 (transposed) and back. The limit of one row is reading W once (`of_read`), that of many rows
// the multiply-add peak (`of_peak`).
#include <benchmark/benchmark.h>

#include <string>

#include "cc/ops/benchmark_call.h"
#include "cc/ops/head_linear/head_linear.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kHeads = 16, kHead = 128, kLatent = 512;

void Run(benchmark::State& state, const std::string& kernel) {
  const int64_t rows = state.range(0);
  const bool transposed = state.range(1) != 0;
  const DType dtype = state.range(2) == 0 ? DType::kBF16 : DType::kQ8_0;
  BenchmarkCall call(HeadLinearOp(), {kernel, static_cast<int32_t>(state.range(3))});
  call.AddInput({rows, kHeads, transposed ? kHead : kLatent});
  call.AddInput({kHeads, kHead, kLatent}, dtype);
  call.AddOutput({rows, kHeads, transposed ? kLatent : kHead});
  call.attributes().Set("transposed", transposed ? 1 : 0);
  call.Time(state);
  call.ReportBytes(state, call.OperandBytes());
  call.ReportOperations(state, 2.0 * static_cast<double>(rows * kHeads * kHead * kLatent));
}

[[maybe_unused]] const bool kRegistered = [] {
  for (auto* b : RegisterForKernels("HeadLinear", Run)) {
    b->ArgNames({"rows", "transposed", "q8_0", "threads"})
        ->ArgsProduct({{1, 32, 512}, {0, 1}, {0, 1}, {1, 2}});
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
