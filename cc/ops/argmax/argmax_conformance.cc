// What every kernel of `argmax` that supports the call has to pass: empty input, equal elements,
// NaN and infinities at any place, misaligned and padded rows, 1 and 3 threads; bit for bit, since
// the contract is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The result of a row according to the contract.
void Expect(const float* row, int64_t n, std::vector<float>* columns, std::vector<float>* values) {
  float value = -kInfinity, column = -1;
  bool bad = false;
  for (int64_t v = 0; v < n; ++v) {
    bad |= std::isnan(row[v]) || row[v] == kInfinity;
    if (row[v] > value) value = row[v], column = static_cast<float>(v);
  }
  columns->push_back(bad ? -1 : column);
  values->push_back(bad ? kInfinity : value);
}

void Check(const OpDefinition& op, const device::Capabilities& caps, const TestTensor& x) {
  const int64_t rows = x.view().shape[0], width = x.view().shape[1];
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << width);
  TestTensor columns(DType::kI32, {rows}, {.misalign_bytes = 4});
  TestTensor values(DType::kF32, {rows}, {.misalign_bytes = 4});
  std::vector<float> expected_columns, expected_values;
  for (int64_t l = 0; l < rows; ++l) {
    Expect(x.view().Row<const float>(l), width, &expected_columns, &expected_values);
  }
  const Attributes attributes;
  const TensorView inputs[] = {x.view()}, outputs[] = {columns.view(), values.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (const int32_t threads : {1, 3}) {
      device::ThreadPool pool({.num_threads = threads});
      columns.Poison();
      values.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(columns.GuardsIntact() && values.GuardsIntact()) << kernel->name;
      EXPECT_EQ(columns.ToFloat(), expected_columns) << kernel->name;
      EXPECT_EQ(values.ToFloat(), expected_values) << kernel->name;
    }
  }
}

}  // namespace

void CheckArgmaxConformance(const OpDefinition& op, const device::Capabilities& caps) {
  Random random(3);
  for (const int64_t width : {1, 31, 32, 33, 700}) {
    TestTensor x(DType::kF32, {5, width}, {.misalign_bytes = 4, .row_padding_bytes = 4});
    x.FillUniform(random, -2, 2);
    Check(op, caps, x);
    std::vector<float> few = x.ToFloat();  // many equal elements, 0 and -0 among them
    for (float& value : few) value = std::round(value);
    x.Set(few);
    Check(op, caps, x);
    std::vector<float> special(few.size(), -kInfinity);  // the first row stays so
    const auto at = [&](int64_t row) {
      return static_cast<size_t>(row * width + random.Int(0, width - 1));
    };
    special[at(1)] = -3.0e38f;
    special[at(2)] = kInfinity;
    special[at(3)] = kNaN;
    special[at(4)] = -0.0f;
    x.Set(special);
    Check(op, caps, x);
  }
  Check(op, caps, TestTensor(DType::kF32, {0, 9}));
}

}  // namespace pagemill::ops
