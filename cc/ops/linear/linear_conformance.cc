// What every kernel of `linear` that supports the call has to pass: closeness
// to the double-precision reference within the contract's bound (another one for kernels that
// round activations) for odd sizes, all weight dtypes, with and without bias, misaligned and
// padded operands, empty input; exactly the outputs are written; y[n] has the same bits whatever
// else is in the call, however the rows are divided into calls, and with 1 and 3 threads. Row
// maxima are checked by row_maxima_conformance.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cc/device/testing/emulated_cpu.h"
#include "cc/ops/act_conformance.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/matrix_conformance.h"
#include "cc/ops/row_maxima_conformance.h"

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
  bool bias;
  // Distance of every pointer from a 64-byte boundary; half of it for weights in block formats,
  // since files align them to 2 bytes only.
  int64_t misalign_bytes;
  int64_t row_padding_bytes;  // of x and y
};

// The operands of one call, random except the outputs.
struct Operation {
  Operation(const Case& c, DType dtype, Random& random)
      : x(DType::kF32, {c.n, c.k}, {c.misalign_bytes, c.row_padding_bytes}),
        w(dtype, {c.m, c.k}, {IsBlockFormat(dtype) ? c.misalign_bytes / 2 : c.misalign_bytes, 0}),
        bias(DType::kF32, {c.m}, {c.misalign_bytes, 0}),
        y(DType::kF32, {c.n, c.m}, {c.misalign_bytes, c.row_padding_bytes}) {
    FillX(random);
    w.FillUniform(random, -1, 1);
    bias.FillUniform(random, -1, 1);
    inputs[0] = x.view();
    inputs[1] = w.view();
    if (c.bias) inputs[2] = bias.view();
    outputs[0] = y.view();
    call = {inputs, outputs, &attributes, nullptr};
  }
  Operation(const Operation&) = delete;

  // Some blocks of 32 are outliers of their row.
  void FillX(Random& random) {
    std::vector<float> values(x.view().Elements());
    float largest = 2;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % 32 == 0) largest = random.Int(0, 3) == 0 ? 9 : 2;
      values[i] = random.Uniform(-largest, largest);
    }
    x.Set(values);
  }

  TestTensor x, w, bias, y;
  TensorView inputs[3];
  TensorView outputs[1];
  Attributes attributes;
  OpCall call;
};

// The exact result and the error bound of each element.
struct Expected {
  std::vector<double> y;
  std::vector<double> bound;
  // For kernels that round activations, for block formats: the error of half a step of all
  // activations, and the rest of the bound.
  std::vector<double> off_by;
  std::vector<double> rounded_bound;

  std::vector<double> bf16_bound;  // for kernels that round activations, for bf16 weights

  double Bound(size_t i, DType dtype, const Kernel& kernel) const {
    if (kernel.activations == Precision::kF32) return bound[i];
    if (dtype == DType::kBF16) return bf16_bound[i];
    return LinearHalfStep(kernel) * off_by[i] + rounded_bound[i];
  }
};

// The largest |x| of each block of 32 of the rows of x.
std::vector<double> BlockMaxima(const std::vector<float>& x, int64_t k) {
  const int64_t blocks = (k + 31) / 32;
  std::vector<double> maxima(k == 0 ? 0 : static_cast<int64_t>(x.size()) / k * blocks);
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % k;
    double& maximum = maxima[static_cast<int64_t>(i) / k * blocks + column / 32];
    maximum = std::max<double>(maximum, std::abs(x[i]));
  }
  return maxima;
}

Expected Compute(const Case& c, const Operation& op) {
  Expected e;
  e.y.resize(c.n * c.m);
  e.bound.resize(c.n * c.m);
  e.bf16_bound.resize(c.n * c.m);
  const std::vector<float> x = op.x.ToFloat();
  const std::vector<float> bias = op.bias.ToFloat();
  std::vector<float> row(c.k);
  const std::vector<double> maxima = BlockMaxima(x, c.k);
  e.off_by.resize(c.n * c.m);
  e.rounded_bound.resize(c.n * c.m);
  // All blocks are random with one span: none has values or a minimum much above this.
  double largest = 0;
  for (int64_t m = 0; m < c.m; ++m) {
    DequantizeRow(op.w.view().dtype, op.w.view().Row<uint8_t>(m), c.k, row.data());
    for (float w : row) largest = std::max<double>(largest, 4 * std::abs(w));
  }
  for (int64_t m = 0; m < c.m; ++m) {
    DequantizeRow(op.w.view().dtype, op.w.view().Row<uint8_t>(m), c.k, row.data());
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = c.bias ? bias[m] : 0.0;
      double magnitude = std::abs(sum);
      double off_by = 0;
      double rounded_magnitude = magnitude;
      for (int64_t k = 0; k < c.k; ++k) {
        const double product = static_cast<double>(row[k]) * x[n * c.k + k];
        sum += product;
        magnitude += std::abs(product);
        const double maximum = maxima[n * ((c.k + 31) / 32) + k / 32];
        off_by += std::abs(row[k]) * maximum;
        rounded_magnitude += largest * maximum;
      }
      e.y[n * c.m + m] = sum;
      e.bound[n * c.m + m] = LinearErrorBound(c.k) * magnitude;
      e.bf16_bound[n * c.m + m] = LinearBf16ErrorBound(c.k) * magnitude;
      e.off_by[n * c.m + m] = off_by;
      e.rounded_bound[n * c.m + m] = LinearErrorBound(c.k) * rounded_magnitude;
    }
  }
  return e;
}

void CheckAgainstExact(const Case& c, DType dtype, const OpDefinition& op,
                       const device::Capabilities& caps, ThreadPool& pool, Random& random) {
  Operation operation(c, dtype, random);
  ASSERT_TRUE(op.check(operation.call).ok()) << op.check(operation.call).ToString();
  const Expected expected = Compute(c, operation);
  for (const Kernel* kernel : SupportedKernels(op, caps, operation.call)) {
    SCOPED_TRACE(std::string(kernel->name));
    operation.y.Poison();
    RunKernel(*kernel, operation.call, pool);
    EXPECT_TRUE(operation.y.GuardsIntact());
    const std::vector<float> y = operation.y.ToFloat();
    for (size_t i = 0; i < y.size(); ++i) {
      // Not `>`: NaN must fail.
      const double bound = expected.Bound(i, dtype, *kernel);
      ASSERT_TRUE(std::abs(y[i] - expected.y[i]) <= bound)
          << "y[" << i / c.m << ", " << i % c.m << "] is " << y[i] << ", expected " << expected.y[i]
          << " within " << bound;
    }
  }
}

void CheckValues(const OpDefinition& op, const device::Capabilities& caps) {
  // K = 256 * j is valid for every format, other K for formats with blocks that divide them.
  const Case cases[] = {
      {1, 1, 1, false, 4, 0},    {1, 7, 256, true, 4, 0},    {2, 5, 512, false, 12, 0},
      {3, 9, 96, true, 0, 20},   {4, 4, 256, false, 36, 4},  {5, 33, 256, true, 4, 8},
      {6, 17, 33, false, 4, 4},  {7, 66, 256, true, 0, 0},   {13, 19, 47, true, 60, 12},
      {67, 5, 288, false, 4, 0}, {0, 5, 256, true, 0, 0},    {16, 131, 15, false, 0, 0},
      {1, 70, 64, true, 4, 0},   {9, 3, 1536, true, 20, 0},  {2, 18, 19, true, 4, 0},
      {4, 21, 37, false, 8, 0},  {3, 100, 768, false, 0, 0}, {13, 9, 1603, true, 4, 0},
      {7, 6, 2304, false, 0, 4}};
  ThreadPool pool({.num_threads = 2});
  Random random(1);
  for (const Case& c : cases) {
    for (DType dtype : kWeightDTypes) {
      if (c.k % Info(dtype).block_elements != 0) continue;
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(c.n) +
                   " m=" + std::to_string(c.m) + " k=" + std::to_string(c.k));
      CheckAgainstExact(c, dtype, op, caps, pool, random);
    }
  }
}

// Else there are fewer rows, and shorter ones.
bool IsFast(const device::Capabilities& caps) {
  return caps.kind == device::DeviceKind::kCpu && !device::IsEmulatedCpu();
}

void CheckInvariance(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(2);
  // Kernels that multiply in tiles of rows have tests of their own.
  const std::vector<int64_t> sizes =
      IsFast(caps) ? std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 31, 67}
                  : std::vector<int64_t>{2, 3, 5, 8, 13, 33};
  for (DType dtype : kWeightDTypes) {
    SCOPED_TRACE(std::string(Info(dtype).name));
    for (int64_t n : sizes) {
      // 83 weight rows: more than one slice and more than one grain, not a multiple of a tile.
      const int64_t k = IsBlockFormat(dtype) ? 256 : 75;
      const Operation operation({n, 83, k, n % 2 == 0, 4, 0}, dtype, random);
      CheckBatchInvariance(op, caps, operation.call, random);
    }
    // Long rows: k is divided into parts.
    const Operation longer({15, 9, IsBlockFormat(dtype) ? 1792 : 1597, true, 0, 0}, dtype, random);
    CheckBatchInvariance(op, caps, longer.call, random);
  }
  // Many long rows of x: several chunks, and several parts if a kernel divides k.
  const int64_t long_k = IsFast(caps) ? 2304 : 512;
  for (DType dtype : {DType::kBF16, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    SCOPED_TRACE(std::string(Info(dtype).name) + " long");
    const Operation many({97, 33, IsBlockFormat(dtype) ? long_k : long_k + 3, true, 4, 4}, dtype,
                         random);
    CheckBatchInvariance(op, caps, many.call, random);
  }
}

// Each result of a call with several matrices has the bits of a separate call.
void CheckSeveralMatrices(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(3);
  const int64_t k = 256;
  const std::vector<int64_t> heights = {40, 1, 70, 33};
  const std::vector<int64_t> sizes =
      IsFast(caps) ? std::vector<int64_t>{0, 1, 3, 15, 40} : std::vector<int64_t>{0, 1, 3, 9};
  for (DType dtype : kWeightDTypes) {
    for (int64_t n : sizes) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
      TestTensor x(DType::kF32, {n, k}, {4, 8}), bias(DType::kF32, {70});
      x.FillUniform(random, -2, 2);
      bias.FillUniform(random, -1, 1);
      std::vector<TestTensor> w, y;
      std::vector<TensorView> inputs = {x.view()}, outputs;
      for (size_t i = 0; i < heights.size(); ++i) {
        w.push_back(TestTensor(dtype, {heights[i], k}));
        w.back().FillUniform(random, -1, 1);
        y.push_back(TestTensor(DType::kF32, {n, heights[i]}));
        inputs.push_back(w.back().view());
        inputs.push_back(i == 2 ? bias.view() : TensorView{});
        outputs.push_back(y.back().view());
      }
      Attributes attributes;
      const OpCall call{inputs, outputs, &attributes, nullptr};
      ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
      CheckMatricesTogether(op, caps, call, {&y[0], &y[1], &y[2], &y[3]});
      // Any of several results may be f32.
      if (n == 3) {
        conformance::CheckActTypes({.op = op,
                                    .caps = caps,
                                    .call = call,
                                    .act_inputs = 0b1,
                                    .act_outputs = 0b1101,
                                    .tolerance = {.abs = LinearErrorBound(k) * 2.0 * k}});
      }
    }
  }
}

// x in bf16 and f16; y in the same type or in f32.
void CheckTypes(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(5);
  for (DType dtype : kWeightDTypes) {
    SCOPED_TRACE(std::string(Info(dtype).name));
    for (int64_t n : {0, 1, 5}) {
      const Case c = {n, 7, IsBlockFormat(dtype) ? 256 : 33, n == 5, 0, 0};
      const Operation operation(c, dtype, random);
      const std::vector<double> bounds = Compute(c, operation).bound;
      const double bound = n == 0 ? 0 : *std::max_element(bounds.begin(), bounds.end());
      for (uint32_t act_outputs : {0u, 1u}) {
        conformance::CheckActTypes({.op = op,
                                    .caps = caps,
                                    .call = operation.call,
                                    .act_inputs = 0b1,
                                    .act_outputs = act_outputs,
                                    .tolerance = {.abs = bound}});
      }
    }
  }
}

void CheckMaxima(const OpDefinition& op, const device::Capabilities& caps) {
  // One chunk and several, one slice and several, ragged, k in parts.
  const Case cases[] = {{1, 83, 64, true, 4, 0},    {3, 7, 75, true, 0, 0},
                        {8, 64, 32, true, 0, 4},    {100, 67, 64, true, 4, 8},
                        {97, 33, IsFast(caps) ? 2304 : 512, true, 0, 0},
                        {0, 40, 64, true, 0, 0}};
  Random random(4);
  for (const Case& c : cases) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1}) {
      if (c.k % Info(dtype).block_elements != 0) continue;
      SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(c.n));
      Operation operation(c, dtype, random);
      CheckRowMaxima({.op = op,
                      .caps = caps,
                      .call = operation.call,
                      .x = operation.x,
                      .bias = operation.bias,
                      .y = operation.y,
                      .random_only = c.k > 500});
    }
  }
}

}  // namespace

void CheckLinearConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckValues(op, caps);
  CheckInvariance(op, caps);
  CheckSeveralMatrices(op, caps);
  CheckTypes(op, caps);
  CheckMaxima(op, caps);
}

}  // namespace pagemill::ops
