// File: cuda/ops/linear/testing/aligned_product.h
// A product of bf16 with rows that vector loads can read, random except its weights, for tests of
// kernels of `linear`: the conformance bodies have none of these. Test code only.
//
//   AlignedProduct product(/*n=*/45, weights, DType::kF32);
//   product.CheckValues(product.Run(kernel, /*rows=*/33));
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/quantized.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {

struct AlignedProduct {
  // Of at most n rows.
  AlignedProduct(int64_t n, const TensorView& weights, DType y_type)
      : w(weights),
        x(DType::kBF16, {n, w.shape[1]}),
        bias(DType::kF32, {w.shape[0]}),
        y(y_type, {n, w.shape[0]}) {
    ops::conformance::Random random(static_cast<uint64_t>(w.shape[0] + w.shape[1]));
    bias.FillUniform(random, -1, 1);
    x.FillUniform(random, -2, 2);
  }

  bool IsSupported(const ops::Kernel& kernel) const {
    const TensorView inputs[] = {x.view(), w, bias.view()}, outputs[] = {y.view()};
    return kernel.supports(GpuCapabilities(),
                           {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  }

  std::vector<float> Run(const ops::Kernel& kernel, int64_t rows) {
    device::ThreadPool pool({.num_threads = 1});
    TensorView in = x.view(), out = y.view();
    in.shape[0] = out.shape[0] = rows;
    const TensorView inputs[] = {in, w, bias.view()};
    y.Poison();
    ops::conformance::RunKernel(kernel,
                                {.inputs = inputs, .outputs = {&out, 1}, .attributes = &attributes},
                                pool);
    EXPECT_TRUE(y.GuardsIntact());
    std::vector<float> all = y.ToFloat();
    all.resize(static_cast<size_t>(rows * out.shape[1]));
    return all;
  }

  // That `got`, of some rows, is within the contract's bound for kernels of bf16.
  void CheckValues(const std::vector<float>& got) const {
    const int64_t outputs = w.shape[0], columns = w.shape[1];
    const int64_t rows = static_cast<int64_t>(got.size()) / outputs;
    const std::vector<float> of_x = x.ToFloat(), of_bias = bias.ToFloat();
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t m = 0; m < outputs; ++m) {
      ops::ReadWeightRow(w, /*matrix=*/0, m, row.data());
      for (int64_t n = 0; n < rows; ++n) {
        double sum = of_bias[static_cast<size_t>(m)], magnitude = std::abs(sum);
        for (int64_t k = 0; k < columns; ++k) {
          const double product =
              double{row[static_cast<size_t>(k)]} * of_x[static_cast<size_t>(n * columns + k)];
          sum += product;
          magnitude += std::abs(product);
        }
        const float y_nm = got[static_cast<size_t>(n * outputs + m)];
        ASSERT_TRUE(std::abs(y_nm - sum) <= ops::LinearBf16ErrorBound(columns) * magnitude)
            << "y[" << n << ", " << m << "] is " << y_nm << ", expected " << sum;
      }
    }
  }

  TensorView w;
  ops::conformance::TestTensor x, bias, y;
  ops::Attributes attributes;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_
