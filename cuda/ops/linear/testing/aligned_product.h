// File: cuda/ops/linear/testing/aligned_product.h
// A product of bf16 with rows that vector loads can read, random except its weights, for tests of
// kernels of `linear`: the conformance bodies have none of these. Test code only.
//
//   AlignedProduct product(/*n=*/45, weights, DType::kF32);
//   product.CheckValues(product.Run(kernel, /*rows=*/33));
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/quantized.h"
#include "cuda/ops/linear/testing/rounded_to_f8.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {

struct AlignedProduct {
  // Of at most n rows, with a bias. Rows of x have two dimensions, as attention leaves them.
  AlignedProduct(int64_t n, const TensorView& weights, DType y_type)
      : w(weights),
        x(DType::kBF16, {n, 2, w.shape[1] / 2}),
        bias(DType::kF32, {w.shape[0]}),
        y(y_type, {n, w.shape[0]}) {
    ops::conformance::Random random(static_cast<uint64_t>(w.shape[0] + w.shape[1]));
    bias.FillUniform(random, -1, 1);
    x.FillUniform(random, -2, 2);
  }

  void LeaveOutBias() {
    has_bias = false;
    bias.Set(std::vector<float>(static_cast<size_t>(w.shape[0]), 0.0f));
  }

  bool IsSupported(const ops::Kernel& kernel) const {
    const TensorView inputs[] = {x.view(), w, bias.view()}, outputs[] = {y.view()};
    return kernel.supports(GpuCapabilities(),
                           {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  }

  // The kernel of this name that takes these operands; null: there is none.
  const ops::Kernel* FindKernel(const ops::OpDefinition& op, std::string_view name) const {
    const auto found = std::ranges::find_if(op.kernels, [&](const ops::Kernel& kernel) {
      return kernel.name == name && IsSupported(kernel);
    });
    return found == op.kernels.end() ? nullptr : &*found;
  }

  // The one that multiplies it.
  std::string_view Choose(std::span<const ops::Kernel> kernels,
                          const ops::KernelLimits& limits) const {
    const TensorView inputs[] = {x.view(), w, bias.view()}, outputs[] = {y.view()};
    const auto chosen = ops::ChooseKernel(
        {.op = "linear", .kernels = kernels}, GpuCapabilities(),
        {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, limits);
    return chosen.ok() ? (*chosen)->name : "none";
  }

  std::vector<float> Run(const ops::Kernel& kernel, int64_t rows) {
    device::ThreadPool pool({.num_threads = 1});
    TensorView in = x.view(), out = y.view();
    in.shape[0] = out.shape[0] = rows;
    const TensorView inputs[] = {in, w, has_bias ? bias.view() : TensorView{}};
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
    ForResults(got, [&](const Exact& exact, float y) {
      const double bound = ops::LinearBf16ErrorBound(w.shape[1]) * exact.magnitude;
      ASSERT_TRUE(std::abs(y - exact.sum) <= bound) << exact.Place() << y;
    });
  }

  // The same for kernels of fp8, each result and all together.
  void CheckFp8Values(const std::vector<float>& got) const {
    double squares = 0;
    ForResults(got, [&](const Exact& exact, float y) {
      const double bound = ops::kScaledF8Error * exact.magnitude +
                           0x1p-18 * exact.largest_x * exact.weights;
      ASSERT_TRUE(std::abs(y - exact.sum) <= bound) << exact.Place() << y;
      squares += (y - exact.sum) * (y - exact.sum) / exact.squares;
    });
    EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())), ops::kScaledF8Deviation);
  }

  // That `got` has products of rows of x in which `block` columns are rounded to e4m3 together, except
  // for the order of sums.
  void CheckRounded(const std::vector<float>& got, int64_t block) const {
    const int64_t outputs = w.shape[0], columns = w.shape[1];
    const int64_t rows = static_cast<int64_t>(got.size()) / outputs;
    const std::vector<float> of_x = RoundedToF8(x.ToFloat(), columns, block);
    const std::vector<float> of_bias = bias.ToFloat();
    const bool is_wide = y.view().dtype == DType::kF32;
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t m = 0; m < outputs; ++m) {
      ops::ReadWeightRow(w, /*matrix=*/0, m, row.data());
      for (int64_t n = 0; n < rows; ++n) {
        double sum = of_bias[static_cast<size_t>(m)], magnitude = std::abs(sum);
        for (int64_t k = 0; k < columns; ++k) {
          const double term = double{row[static_cast<size_t>(k)]} *
                              of_x[static_cast<size_t>(n * columns + k)];
          sum += term;
          magnitude += std::abs(term);
        }
        // Of y in bf16, half a unit.
        const double bound =
            ops::ScaledErrorBound(columns) * magnitude + (is_wide ? 0 : 0x1p-8 * std::abs(sum));
        ASSERT_NEAR(got[static_cast<size_t>(n * outputs + m)], sum, bound) << n << ", " << m;
      }
    }
  }

  // That a row of zeros, whose scale is 0, has the bias alone, and a NaN makes its row NaN.
  void CheckZerosAndNaN(const ops::Kernel& kernel) {
    constexpr int64_t kZeros = 3, kNaN = 5;
    const int64_t outputs = w.shape[0], columns = w.shape[1], rows = x.view().shape[0];
    std::vector<float> values = x.ToFloat();
    std::fill_n(values.begin() + kZeros * columns, columns, 0.0f);
    values[static_cast<size_t>((kNaN + 1) * columns - 1)] = std::nanf("");
    x.Set(values);
    const std::vector<float> got = Run(kernel, rows), of_bias = bias.ToFloat();
    for (int64_t i = 0; i < rows * outputs; ++i) {
      const float result = got[static_cast<size_t>(i)];
      EXPECT_EQ(std::isnan(result), i / outputs == kNaN) << i;
      if (i / outputs != kZeros) continue;
      EXPECT_EQ(result, of_bias[static_cast<size_t>(i % outputs)]);
    }
  }

  TensorView w;
  ops::conformance::TestTensor x, bias, y;
  bool has_bias = true;
  ops::Attributes attributes;

 private:
  // y[n, m] without rounding, and what bounds its error: sums of the magnitudes and of the squares
  // of products and the bias, and of the magnitudes of weights; the largest |x| of the row.
  struct Exact {
    int64_t n, m;
    double sum, magnitude, squares, weights = 0, largest_x = 0;

    std::string Place() const {
      return "y[" + std::to_string(n) + ", " + std::to_string(m) + "], expected " +
             std::to_string(sum) + ", is ";
    }
  };

  // Calls check(exact, y) for each result, until one fails.
  template <typename Check>
  void ForResults(const std::vector<float>& got, const Check& check) const {
    const int64_t outputs = w.shape[0], columns = w.shape[1];
    const int64_t rows = static_cast<int64_t>(got.size()) / outputs;
    const std::vector<float> of_x = x.ToFloat(), of_bias = bias.ToFloat();
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t m = 0; m < outputs; ++m) {
      ops::ReadWeightRow(w, /*matrix=*/0, m, row.data());
      for (int64_t n = 0; n < rows; ++n) {
        const double added = of_bias[static_cast<size_t>(m)];
        Exact exact = {.n = n,
                       .m = m,
                       .sum = added,
                       .magnitude = std::abs(added),
                       .squares = added * added};
        for (int64_t k = 0; k < columns; ++k) {
          const double weight = row[static_cast<size_t>(k)];
          const double value = of_x[static_cast<size_t>(n * columns + k)];
          exact.sum += weight * value;
          exact.magnitude += std::abs(weight * value);
          exact.squares += weight * value * weight * value;
          exact.weights += std::abs(weight);
          exact.largest_x = std::max(exact.largest_x, std::abs(value));
        }
        check(exact, got[static_cast<size_t>(n * outputs + m)]);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TESTING_ALIGNED_PRODUCT_H_
