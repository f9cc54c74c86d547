// What every kernel of `split` has to pass: for each type, odd sizes, misaligned and padded rows,
// 1 and 3 threads and no rows; bit for bit, since the contract is exact.
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
using conformance::TestTensorOptions;

struct Shape {
  int64_t rows, pieces;
  int64_t parts[2];
  bool flat = false;  // rows of the results have one dimension
  bool aligned = false;
};

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape) {
  Random random(7);
  const int64_t width = shape.parts[0] + shape.parts[1];
  const TestTensorOptions odd{.misalign_bytes = 4, .row_padding_bytes = 4};
  TestTensor x(DType::kF32, {shape.rows, shape.pieces, width},
               shape.aligned ? TestTensorOptions{.row_padding_bytes = 16} : odd);
  x.FillUniform(random, -1, 1);
  std::vector<TestTensor> parts;
  std::vector<TensorView> outputs;
  for (int64_t part : shape.parts) {
    std::vector<int64_t> dims = {shape.rows, shape.pieces, part};
    if (shape.flat) dims = {shape.rows, shape.pieces * part};
    parts.emplace_back(
        TestTensor(DType::kF32, dims, {.row_padding_bytes = shape.aligned ? 16 : 8}));
    outputs.push_back(parts.back().view());
  }
  const TensorView inputs[] = {x.view()};
  Attributes attributes;
  attributes.Set("at", static_cast<double>(shape.parts[0]));
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  const std::vector<float> values = x.ToFloat();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads = 1; threads <= 3; ++threads) {
      device::ThreadPool pool({.num_threads = threads});
      for (TestTensor& part : parts) part.Poison();
      conformance::RunKernel(*kernel, call, pool);
      int64_t column = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        std::vector<float> expected;
        for (int64_t piece = 0; piece < shape.rows * shape.pieces; ++piece) {
          const auto first = values.begin() + piece * width + column;
          expected.insert(expected.end(), first, first + shape.parts[i]);
        }
        EXPECT_TRUE(conformance::BitEqual(parts[i].ToFloat(), expected))
            << kernel->name << " part " << i;
        EXPECT_TRUE(parts[i].GuardsIntact()) << kernel->name << " part " << i;
        column += shape.parts[i];
      }
    }
  }
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b1});
}

}  // namespace

void CheckSplitConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {
      {1, 1, {1, 1}},  {5, 3, {7, 2}}, {3, 16, {128, 64}},   {67, 2, {33, 5}},
      {2, 1, {1, 14}}, {0, 3, {2, 3}}, {5, 3, {7, 2}, true}, {5, 3, {24, 8}, false, true}};
  for (const Shape& shape : shapes) CheckShape(op, caps, shape);
}

}  // namespace pagemill::ops
