// File: cuda/ops/testing/aligned_rows.h
// Rows that vector loads can read, short and longer than a block, for kernels of row-wise ops: those
// of the conformance bodies are misaligned. Test code only.
//
//   RowOperands operands = {.inputs = 1, .weights = true};
//   operands.attributes.Set("eps", 1e-5);
//   CheckAlignedRows(OnGpu<RmsNormKernels>(ops::RmsNormOp()), operands);
#ifndef PAGEMILL_CUDA_OPS_TESTING_ALIGNED_ROWS_H_
#define PAGEMILL_CUDA_OPS_TESTING_ALIGNED_ROWS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/tensor/dtype.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {

// Operands of an op, rows [3, size] except weights, f32 [size], which are the last input.
struct RowOperands {
  int inputs = 1;
  bool weights = false;
  int outputs = 1;
  ops::Attributes attributes = {};
};

// Every kernel against the reference on the same activations, within two roundings to their type.
inline void CheckAlignedRows(const ops::OpDefinition& op, const RowOperands& operands) {
  using ops::conformance::TestTensor;
  device::ThreadPool pool({.num_threads = 1});
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 1e-5}, {DType::kBF16, 0x1p-7}, {DType::kF16, 0x1p-10}}) {
    for (int64_t size : {8, 1000, 1536, 16392}) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " of " + std::to_string(size));
      ops::conformance::Random random(static_cast<uint64_t>(size));
      std::deque<TestTensor> tensors;
      const auto add = [&](DType type, std::initializer_list<int64_t> shape) {
        tensors.emplace_back(type, shape);
        tensors.back().FillUniform(random, -2, 2);
        return tensors.back().view();
      };
      std::vector<TensorView> inputs, outputs;
      for (int i = 0; i < operands.inputs; ++i) inputs.push_back(add(dtype, {3, size}));
      if (operands.weights) inputs.push_back(add(DType::kF32, {size}));
      const size_t first_output = tensors.size();
      for (int i = 0; i < operands.outputs; ++i) outputs.push_back(add(dtype, {3, size}));
      const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &operands.attributes};
      ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
      const auto run = [&](const ops::Kernel& kernel) {
        std::vector<float> all;
        for (size_t i = first_output; i < tensors.size(); ++i) tensors[i].Poison();
        ops::conformance::RunKernel(kernel, call, pool);
        for (const TestTensor& tensor : tensors) EXPECT_TRUE(tensor.GuardsIntact());
        for (size_t i = first_output; i < tensors.size(); ++i) {
          for (float value : tensors[i].ToFloat()) all.push_back(value);
        }
        return all;
      };
      const std::vector<float> expected = run(ops::conformance::ReferenceKernel(op));
      for (const ops::Kernel& kernel : op.kernels) {
        const std::vector<float> found = run(kernel);
        for (size_t i = 0; i < found.size(); ++i) {
          ASSERT_LE(std::abs(found[i] - expected[i]), tolerance * (1e-3 + std::abs(expected[i])))
              << kernel.name << " at " << i << ": " << found[i] << ", not " << expected[i];
        }
      }
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TESTING_ALIGNED_ROWS_H_
