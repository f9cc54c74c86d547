// What every kernel of `unfold` has to pass: for each type, odd sizes, misaligned and padded rows,
// windows that overlap, leave gaps or reach beyond a row, windows of an index over whole groups of
// rows and a part of one, 1 and 3 threads and no rows; bit for bit, since the contract is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
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
  int64_t rows, positions, channels;
  int64_t size, stride = 1, padding = 0;

  int64_t windows() const { return (positions + 2 * padding - size) / stride + 1; }
};

std::vector<float> Expected(const Shape& shape, const std::vector<float>& x) {
  std::vector<float> y;
  for (int64_t n = 0; n < shape.rows; ++n) {
    for (int64_t j = 0; j < shape.windows(); ++j) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        for (int64_t k = 0; k < shape.size; ++k) {
          const int64_t p = j * shape.stride + k - shape.padding;
          const bool inside = p >= 0 && p < shape.positions;
          const int64_t from = (n * shape.positions + p) * shape.channels + c;
          y.push_back(inside ? x[static_cast<size_t>(from)] : 0.0f);
        }
      }
    }
  }
  return y;
}

// Runs every kernel on x, and on bf16 and f16.
void CheckCall(const OpDefinition& op, const device::Capabilities& caps, const OpCall& call,
               TestTensor& y, const std::vector<float>& expected) {
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads = 1; threads <= 3; ++threads) {
      device::ThreadPool pool({.num_threads = threads});
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << kernel->name;
      EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
    }
  }
  conformance::CheckActTypes({.op = op, .caps = caps, .call = call, .act_inputs = 0b1});
}

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape) {
  Random random(7);
  TestTensor x(DType::kF32, {shape.rows, shape.positions, shape.channels},
               {.misalign_bytes = 4, .row_padding_bytes = 4});
  x.FillUniform(random, -1, 1);
  TestTensor y(DType::kF32, {shape.rows, shape.windows(), shape.channels * shape.size},
               {.row_padding_bytes = 8});
  const TensorView inputs[] = {x.view()};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("size", static_cast<double>(shape.size));
  if (shape.stride != 1) attributes.Set("stride", static_cast<double>(shape.stride));
  if (shape.padding != 0) attributes.Set("padding", static_cast<double>(shape.padding));
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  CheckCall(op, caps, call, y, Expected(shape, x.ToFloat()));
}

struct ListedShape {
  int64_t rows, positions, channels;
  int64_t group, windows, size;
};

void CheckIndex(const OpDefinition& op, const device::Capabilities& caps,
                const ListedShape& shape) {
  Random random(11);
  TestTensor x(DType::kF32, {shape.rows, shape.positions, shape.channels},
               {.misalign_bytes = 4, .row_padding_bytes = 4});
  x.FillUniform(random, -1, 1);
  TestTensor y(DType::kF32, {shape.rows, shape.windows, shape.channels * shape.size},
               {.row_padding_bytes = 8});
  // From in front of the group to behind it.
  std::vector<int32_t> index;
  const float end = static_cast<float>(shape.group * shape.positions + 1);
  for (int64_t i = 0; i < shape.group * shape.windows * shape.size; ++i) {
    index.push_back(static_cast<int32_t>(std::floor(random.Uniform(-1, end))));
  }
  const std::vector<float> from = x.ToFloat();
  std::vector<float> expected;
  for (int64_t n = 0; n < shape.rows; ++n) {
    const int64_t first = n / shape.group * shape.group;
    for (int64_t j = 0; j < shape.windows; ++j) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        for (int64_t k = 0; k < shape.size; ++k) {
          const int64_t entry = ((n - first) * shape.windows + j) * shape.size + k;
          const int64_t p = index[static_cast<size_t>(entry)];
          const int64_t position = first * shape.positions + p;
          const bool inside = p >= 0 && p < shape.group * shape.positions &&
                              position < shape.rows * shape.positions;
          const int64_t at = position * shape.channels + c;
          expected.push_back(inside ? from[static_cast<size_t>(at)] : 0.0f);
        }
      }
    }
  }
  const TensorView inputs[] = {
      x.view(),
      TensorView::Dense(index.data(), DType::kI32, {shape.group, shape.windows, shape.size})};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("channels", static_cast<double>(shape.channels));
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  CheckCall(op, caps, call, y, expected);
}

}  // namespace

void CheckUnfoldConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{1, 1, 1, 1},          {5, 7, 3, 3, 2, 1},    {3, 384, 1, 9, 6, 3},
                          {67, 16, 33, 3, 2, 1}, {2, 16, 65, 16},       {4, 9, 5, 2, 5},
                          {3, 2, 4, 5, 1, 4},    {1, 64, 480, 3, 2, 1}, {0, 4, 3, 3, 2, 1}};
  for (const Shape& shape : shapes) CheckShape(op, caps, shape);
  const ListedShape listed[] = {{1, 1, 1, 1, 1, 1},  {12, 16, 7, 4, 21, 1}, {8, 4, 33, 4, 1, 9},
                                {10, 3, 5, 4, 2, 3}, {7, 5, 3, 1, 4, 2},    {0, 4, 3, 2, 3, 1}};
  for (const ListedShape& shape : listed) CheckIndex(op, caps, shape);
}

}  // namespace pagemill::ops
