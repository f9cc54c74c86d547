// What every kernel of `concat` has to pass: for each type, odd sizes, misaligned and padded rows, 1
// to 3 threads and no rows; bit for bit, since the contract is exact.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

struct Shape {
  int64_t rows;
  std::vector<int64_t> widths;
};

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape) {
  Random random(7);
  std::vector<TestTensor> parts;
  std::vector<TensorView> inputs;
  int64_t width = 0;
  uint32_t acts = 0;
  for (int64_t part : shape.widths) {
    parts.emplace_back(TestTensor(DType::kF32, {shape.rows, part},
                                  {.misalign_bytes = 4, .row_padding_bytes = 4}));
    parts.back().FillUniform(random, -1, 1);
    inputs.push_back(parts.back().view());
    acts = acts << 1 | 1;
    width += part;
  }
  TestTensor y(DType::kF32, {shape.rows, width}, {.row_padding_bytes = 8});
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  std::vector<float> expected;
  for (int64_t n = 0; n < shape.rows; ++n) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::vector<float> values = parts[i].ToFloat();
      const auto first = values.begin() + n * shape.widths[i];
      expected.insert(expected.end(), first, first + shape.widths[i]);
    }
  }
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads = 1; threads <= 3; ++threads) {
      device::ThreadPool pool({.num_threads = threads});
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << kernel->name;
      EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
    }
  }
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = acts});
}

}  // namespace

void CheckConcatConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{1, {1, 1}},    {5, {7, 2, 3}},
                          {3, {128, 64}}, {67, {33, 5, 1, 1, 2, 8, 9, 4}},
                          {0, {2, 3}}};
  for (const Shape& shape : shapes) CheckShape(op, caps, shape);
}

}  // namespace pagemill::ops
