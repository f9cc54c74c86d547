#include "cc/ops/matrix_conformance.h"

#include <algorithm>
#include <string>

namespace pagemill::ops::conformance {
namespace {

using device::ThreadPool;

// Runs rows [begin, end) of the call's x as a separate call.
std::vector<float> RunSlice(const Kernel& kernel, const OpCall& call, int64_t begin, int64_t end,
                            ThreadPool& pool) {
  TestTensor part(DType::kF32, {end - begin, call.outputs[0].shape[1]});
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  inputs[0].data = inputs[0].Row<float>(begin);
  inputs[0].shape[0] = end - begin;
  const TensorView outputs[1] = {part.view()};
  RunKernel(kernel, {inputs, outputs, call.attributes, nullptr}, pool);
  return part.ToFloat();
}

void Append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

}  // namespace

void CheckBatchInvariance(const OpDefinition& op, const device::Capabilities& caps,
                          const OpCall& call, Random& random) {
  const int64_t rows = call.inputs[0].shape[0];
  for (const Kernel* kernel : SupportedKernels(op, caps, call)) {
    if (kernel->varies_with_batch) continue;
    SCOPED_TRACE(std::string(kernel->name));
    ThreadPool alone({.num_threads = 1});
    std::vector<float> one_by_one;
    for (int64_t n = 0; n < rows; ++n) Append(one_by_one, RunSlice(*kernel, call, n, n + 1, alone));
    for (int32_t threads : ThreadCounts(caps)) {
      ThreadPool pool({.num_threads = threads});
      ASSERT_TRUE(BitEqual(RunSlice(*kernel, call, 0, rows, pool), one_by_one))
          << threads << " threads";
    }
    std::vector<float> in_pieces;
    for (int64_t begin = 0; begin < rows;) {
      const int64_t end = std::min(rows, begin + random.Int(1, 9));
      Append(in_pieces, RunSlice(*kernel, call, begin, end, alone));
      begin = end;
    }
    ASSERT_TRUE(BitEqual(in_pieces, one_by_one)) << "random pieces";
  }
}

void CheckMatricesTogether(const OpDefinition& op, const device::Capabilities& caps,
                           const OpCall& call, const std::vector<TestTensor*>& results) {
  const size_t operands = (call.inputs.size() - 1) / results.size();
  ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(std::string(kernel->name));
    for (TestTensor* result : results) result->Poison();
    RunKernel(*kernel, call, pool);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i]->GuardsIntact());
      const std::vector<float> together = results[i]->ToFloat();
      std::vector<TensorView> own = {call.inputs[0]};
      const auto first = call.inputs.begin() + static_cast<ptrdiff_t>(1 + i * operands);
      own.insert(own.end(), first, first + static_cast<ptrdiff_t>(operands));
      results[i]->Poison();
      RunKernel(*kernel, {own, call.outputs.subspan(i, 1), call.attributes, nullptr}, pool);
      EXPECT_TRUE(BitEqual(together, results[i]->ToFloat())) << "matrix " << i;
    }
  }
}

}  // namespace pagemill::ops::conformance
