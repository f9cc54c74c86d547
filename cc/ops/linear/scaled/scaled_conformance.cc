// Conformance checks for `linear` with scaled weights, for every kernel that `caps` supports:
// values within the contract's bounds of the exact product, and equal bits of a row in any batch,
// with any number of threads, alone and among several matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/matrix_conformance.h"
#include "cc/ops/row_maxima_conformance.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops {
namespace {

using conformance::CheckBatchInvariance;
using conformance::CheckMatricesTogether;
using conformance::Random;
using conformance::RunKernel;
using conformance::SupportedKernels;
using conformance::TestTensor;
using device::ThreadPool;

struct Case {
  int64_t n;
  int64_t m;
  int64_t k;
  int64_t block_rows = 1;
  int64_t block_columns = 0;  // 0: one scale per row
  bool bias = false;
  int64_t misalign_bytes = 0;     // of x and y; weights by one byte
  int64_t row_padding_bytes = 0;  // of x and y
};

int64_t Columns(const Case& c) { return c.block_columns == 0 ? c.k : c.block_columns; }
int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Random operands of one matrix.
struct Matrix {
  Matrix(const Case& c, DType dtype, Random& random)
      : w(dtype, {c.m, c.k}, {.misalign_bytes = c.misalign_bytes == 0 ? 0 : 1}),
        scales(DType::kF32, {DivideUp(c.m, c.block_rows), DivideUp(c.k, Columns(c))}),
        bias(DType::kF32, {c.m}),
        y(DType::kF32, {c.n, c.m}, {c.misalign_bytes, c.row_padding_bytes}) {
    const float largest = dtype == DType::kI8 ? 128 : 448;
    w.FillUniform(random, 1 - largest, largest - 1);
    if (dtype == DType::kI8) *w.view().Row<uint8_t>(0) = 0x80;  // -128
    scales.FillUniform(random, 0.2f / largest, 1 / largest);
    bias.FillUniform(random, -1, 1);
    parts->format = {.block_rows = c.block_rows, .block_columns = Columns(c)};
    parts->values = w.view();
    parts->scales = scales.view();
  }

  TensorView weight() const {
    TensorView view = w.view();
    view.parts = parts.get();
    return view;
  }

  TestTensor w, scales, bias, y;
  std::unique_ptr<QuantizedParts> parts = std::make_unique<QuantizedParts>();
};

// A call with one matrix.
struct Operation {
  Operation(const Case& c, DType dtype, Random& random)
      : x(DType::kF32, {c.n, c.k}, {c.misalign_bytes, c.row_padding_bytes}),
        matrix(c, dtype, random) {
    x.FillUniform(random, -2, 2);
    inputs = {x.view(), matrix.weight()};
    inputs.push_back(c.bias ? matrix.bias.view() : TensorView{});
    outputs[0] = matrix.y.view();
    call = {inputs, outputs, &attributes, nullptr};
  }
  Operation(const Operation&) = delete;

  TestTensor x;
  Matrix matrix;
  std::vector<TensorView> inputs;
  TensorView outputs[1];
  Attributes attributes;
  OpCall call;
};

// The exact result, and its error bound for each precision.
struct Expected {
  double y, f32_bound, bf16_bound, int8_bound;

  double Bound(Precision precision) const {
    if (precision == Precision::kF32) return f32_bound;
    return precision == Precision::kBf16 ? bf16_bound : int8_bound;
  }
};

// What is expected of the elements of y, row by row.
std::vector<Expected> Exact(const Case& c, const Operation& op) {
  const std::vector<float> x = op.x.ToFloat(), w = op.matrix.w.ToFloat();
  const TensorView& scales = op.matrix.scales.view();
  std::vector<Expected> all;
  for (int64_t n = 0; n < c.n; ++n) {
    for (int64_t m = 0; m < c.m; ++m) {
      double sum = c.bias ? op.matrix.bias.view().Row<float>(m)[0] : 0.0;
      const double bias = std::abs(sum);
      double magnitude = bias, weights = 0, largest = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double weight = static_cast<double>(w[static_cast<size_t>(m * c.k + k)]) *
                              scales.Row<float>(m / c.block_rows)[k / Columns(c)];
        const double of_x = x[static_cast<size_t>(n * c.k + k)];
        sum += weight * of_x;
        magnitude += std::abs(weight * of_x);
        weights += std::abs(weight);
        largest = std::max(largest, std::abs(of_x));
      }
      all.push_back({sum, ScaledErrorBound(c.k) * magnitude, ScaledBf16ErrorBound(c.k) * magnitude,
                     kScaledInt8Error * largest * weights + 0x1p-23 * bias});
    }
  }
  return all;
}

void CheckAgainstExact(const Case& c, DType dtype, const OpDefinition& op,
                       const device::Capabilities& caps, Random& random) {
  Operation operation(c, dtype, random);
  ASSERT_TRUE(op.check(operation.call).ok()) << op.check(operation.call).ToString();
  const std::vector<Expected> exact = Exact(c, operation);
  ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : SupportedKernels(op, caps, operation.call)) {
    SCOPED_TRACE(std::string(kernel->name));
    operation.matrix.y.Poison();
    RunKernel(*kernel, operation.call, pool);
    EXPECT_TRUE(operation.matrix.y.GuardsIntact());
    for (int64_t n = 0; n < c.n; ++n) {
      for (int64_t m = 0; m < c.m; ++m) {
        const Expected& expected = exact[static_cast<size_t>(n * c.m + m)];
        const double actual = operation.outputs[0].Row<float>(n)[m];
        const double bound = expected.Bound(kernel->activations);
        // Not `>`: NaN must fail.
        ASSERT_TRUE(std::abs(actual - expected.y) <= bound)
            << "y[" << n << ", " << m << "] is " << actual << ", expected " << expected.y
            << " within " << bound;
      }
    }
  }
}

constexpr DType kDTypes[] = {DType::kI8, DType::kF8E4M3};

void CheckValues(const OpDefinition& op, const device::Capabilities& caps) {
  const Case cases[] = {
      {.n = 1, .m = 1, .k = 1},
      {.n = 1, .m = 7, .k = 64, .bias = true, .misalign_bytes = 4},
      {.n = 2, .m = 33, .k = 63, .misalign_bytes = 12},
      {.n = 3, .m = 32, .k = 66, .bias = true, .row_padding_bytes = 20},
      {.n = 5, .m = 17, .k = 130, .misalign_bytes = 36, .row_padding_bytes = 4},
      {.n = 13, .m = 31, .k = 5, .bias = true},
      {.n = 0, .m = 5, .k = 64},
      {.n = 27, .m = 3, .k = 191},
      {.n = 67, .m = 35, .k = 1200, .bias = true},
      {.n = 1, .m = 70, .k = 600, .bias = true},
      {.n = 2, .m = 66, .k = 300, .block_rows = 128, .block_columns = 128, .bias = true},
      {.n = 9, .m = 66, .k = 256, .block_rows = 24, .block_columns = 64},
      {.n = 1, .m = 130, .k = 257, .block_rows = 128, .block_columns = 128},
      {.n = 4, .m = 12, .k = 47, .block_rows = 5, .block_columns = 4, .bias = true},
      {.n = 3, .m = 40, .k = 100, .block_rows = 40},
      {.n = 3, .m = 40, .k = 100, .block_rows = 7, .block_columns = 1000},
  };
  Random random(1);
  for (const Case& c : cases) {
    for (DType dtype : kDTypes) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(c.n) +
                   " m=" + std::to_string(c.m) + " k=" + std::to_string(c.k));
      CheckAgainstExact(c, dtype, op, caps, random);
    }
  }
}

void CheckInvariance(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(2);
  for (DType dtype : kDTypes) {
    SCOPED_TRACE(std::string(Info(dtype).name));
    for (int64_t n : {2, 4, 7, 8, 11, 13, 25, 101}) {
      const Operation operation({.n = n, .m = 35, .k = 75, .bias = n % 2 == 0, .misalign_bytes = 4},
                                dtype, random);
      CheckBatchInvariance(op, caps, operation.call, random);
    }
    const Operation blocks({.n = 14, .m = 35, .k = 150, .block_rows = 16, .block_columns = 64},
                           dtype, random);
    CheckBatchInvariance(op, caps, blocks.call, random);
  }
}

// Each result of a call with several matrices has the bits of a separate call.
void CheckSeveralMatrices(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(3);
  for (DType dtype : kDTypes) {
    for (int64_t n : {0, 1, 3, 110}) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
      TestTensor x(DType::kF32, {n, 72}, {4, 8});
      x.FillUniform(random, -2, 2);
      std::vector<Matrix> matrices;
      std::vector<TensorView> inputs = {x.view()}, outputs;
      for (int64_t m : {40, 1, 70, 33}) {
        matrices.emplace_back(Case{.n = n, .m = m, .k = 72}, dtype, random);
        const Matrix& matrix = matrices.back();
        inputs.insert(inputs.end(), {matrix.weight(), m == 70 ? matrix.bias.view() : TensorView{}});
        outputs.push_back(matrix.y.view());
      }
      Attributes attributes;
      const OpCall call{inputs, outputs, &attributes, nullptr};
      ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
      CheckMatricesTogether(op, caps, call,
                            {&matrices[0].y, &matrices[1].y, &matrices[2].y, &matrices[3].y});
    }
  }
}

// The largest bound of an element of y. Activations that are rounded to another type may be larger.
double LargestBound(const Case& c, const Operation& op, Precision precision) {
  double largest = 0;
  for (const Expected& expected : Exact(c, op)) {
    largest = std::max(largest, 1.01 * expected.Bound(precision));
  }
  return largest;
}

// x in bf16 and f16; y in the same type or in f32.
void CheckTypes(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(8);
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kInt8Block}) {
    std::vector<Kernel> kernels;
    for (const Kernel& kernel : op.kernels) {
      if (kernel.activations == precision || kernel.name == "reference") kernels.push_back(kernel);
    }
    OpDefinition of_precision = op;
    of_precision.kernels = kernels;
    for (DType dtype : kDTypes) {
      for (int64_t n : {0, 3}) {
        const Case c = {.n = n, .m = 35, .k = 66, .block_rows = 16, .bias = n > 0};
        const Operation operation(c, dtype, random);
        for (uint32_t act_outputs : {0u, 1u}) {
          conformance::CheckActTypes(
              {.op = of_precision,
               .caps = caps,
               .call = operation.call,
               .act_inputs = 0b1,
               .act_outputs = act_outputs,
               .tolerance = {.abs = LargestBound(c, operation, precision)}});
        }
      }
    }
  }
}

// A NaN in x, or in W for types that have NaN, reaches its outputs and no others.
void CheckNaN(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(4);
  for (DType dtype : kDTypes) {
    const Case c = {.n = 5, .m = 34, .k = 70};
    Operation operation(c, dtype, random);
    operation.x.view().Row<float>(3)[69] = std::nanf("");
    const bool in_weights = dtype == DType::kF8E4M3;
    if (in_weights) operation.matrix.w.view().Row<uint8_t>(33)[2] = 0xff;
    ThreadPool pool({.num_threads = 1});
    for (const Kernel* kernel : SupportedKernels(op, caps, operation.call)) {
      operation.matrix.y.Poison();
      RunKernel(*kernel, operation.call, pool);
      for (int64_t n = 0; n < c.n; ++n) {
        for (int64_t m = 0; m < c.m; ++m) {
          EXPECT_EQ(std::isnan(operation.outputs[0].Row<float>(n)[m]),
                    n == 3 || (in_weights && m == 33))
              << kernel->name << " " << Info(dtype).name << " " << n << " " << m;
        }
      }
    }
  }
}

// Every code of e4m3, times 1 and times 0.
void CheckCodes(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(5);
  Operation operation({.n = 1, .m = 254, .k = 1}, DType::kF8E4M3, random);
  operation.x.view().Row<float>(0)[0] = 1;
  for (int64_t m = 0; m < 254; ++m) {  // all but the two NaN
    *operation.matrix.w.view().Row<uint8_t>(m) = static_cast<uint8_t>(m < 127 ? m : m + 1);
    *operation.matrix.scales.view().Row<float>(m) = 1;
  }
  const std::vector<float> expected = operation.matrix.w.ToFloat();
  ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel : SupportedKernels(op, caps, operation.call)) {
    RunKernel(*kernel, operation.call, pool);
    EXPECT_EQ(operation.matrix.y.ToFloat(), expected) << kernel->name;
  }
}

// The longest int8 row, with the largest possible sums of either sign.
void CheckLongestInt8Row(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(6);
  Operation operation({.n = 1, .m = 2, .k = kMaxInt8K}, DType::kI8, random);
  ThreadPool pool({.num_threads = 1});
  for (int weight : {-128, 127}) {
    for (int64_t m = 0; m < 2; ++m) {
      *operation.matrix.scales.view().Row<float>(m) = 1;
      for (int64_t i = 0; i < kMaxInt8K; ++i) {
        operation.matrix.w.view().Row<uint8_t>(m)[i] = static_cast<uint8_t>(weight);
      }
    }
    for (float x : {1.0f, -1.0f}) {
      for (int64_t i = 0; i < kMaxInt8K; ++i) operation.x.view().Row<float>(0)[i] = x;
      for (const Kernel* kernel : SupportedKernels(op, caps, operation.call)) {
        RunKernel(*kernel, operation.call, pool);
        for (float y : operation.matrix.y.ToFloat()) {
          EXPECT_NEAR(y, static_cast<double>(x) * weight * static_cast<double>(kMaxInt8K), 64)
              << kernel->name << " " << weight << " " << x;
        }
      }
    }
  }
}

void CheckMaxima(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(7);
  for (DType dtype : {DType::kI8, DType::kF8E4M3}) {
    for (int64_t n : {1, 5, 70}) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
      Operation operation({.n = n, .m = 83, .k = 96, .bias = true}, dtype, random);
      CheckRowMaxima({.op = op,
                      .caps = caps,
                      .call = operation.call,
                      .x = operation.x,
                      .bias = operation.matrix.bias,
                      .y = operation.matrix.y});
    }
  }
}

}  // namespace

void CheckScaledConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckValues(op, caps);
  CheckInvariance(op, caps);
  CheckSeveralMatrices(op, caps);
  CheckTypes(op, caps);
  CheckNaN(op, caps);
  CheckCodes(op, caps);
  CheckLongestInt8Row(op, caps);
  CheckMaxima(op, caps);
}

}  // namespace pagemill::ops
