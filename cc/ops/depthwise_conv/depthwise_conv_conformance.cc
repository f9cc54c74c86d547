// What every kernel of `depthwise_conv` has to pass: odd sizes, misaligned and padded rows,
// requests shorter than the taps, grids of several sizes and times in another order than row by
// row, 1 and 3 threads, no tokens.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/depthwise_conv/depthwise_conv.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

// The contract's bound: 64 taps of products below 1, times 2^-23, and one rounding of the sum.
constexpr conformance::Tolerance kTolerance{.abs = 64 * 0x1p-23 * 8, .rel = 1e-6};

struct Shape {
  int64_t channels, taps;
  int64_t before = 0;
  int64_t side = 0;  // of the cells around a token; 0: taps along the request
  bool has_bias = true;
};

// Requests of some tokens each; on a grid, of one more column than rows, two times, and columns
// before rows.
struct Batch {
  explicit Batch(const std::vector<int32_t>& counts) : starts{0} {
    for (int32_t count : counts) {
      int32_t columns = 1;
      while (columns * (columns - 1) * 2 < count) ++columns;
      const int32_t rows = columns > 1 ? columns - 1 : 1;
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t place : {i / (rows * columns), i % rows, i / rows % columns}) {
          positions.push_back(place);
        }
      }
      starts.push_back(starts.back() + count);
    }
    view.num_tokens = starts.back();
    view.num_requests = static_cast<int32_t>(counts.size());
    view.query_start = starts.data();
    view.grid_positions = positions.data();
  }
  Batch(const Batch&) = delete;

  std::vector<int32_t> starts, positions;
  BatchView view;
};

// The row of tap `k` of token `t` of the request [begin, end), found by comparing all tokens; -1 if
// there is none.
int64_t RowOf(const Batch& batch, const Shape& shape, int64_t begin, int64_t end, int64_t t,
              int64_t k) {
  for (int64_t other = begin; other < end; ++other) {
    const int32_t* const to = &batch.positions[static_cast<size_t>(other * kGridDims)];
    const int32_t* const from = &batch.positions[static_cast<size_t>(t * kGridDims)];
    const bool found = shape.side == 0 ? other - t == k - shape.before
                                       : to[0] == from[0] &&
                                             to[1] - from[1] == k / shape.side - shape.side / 2 &&
                                             to[2] - from[2] == k % shape.side - shape.side / 2;
    if (found) return other;
  }
  return -1;
}

std::vector<float> Expected(const Batch& batch, const Shape& shape, const std::vector<float>& x,
                            const std::vector<float>& w, const std::vector<float>& bias) {
  std::vector<float> y;
  for (size_t r = 0; r + 1 < batch.starts.size(); ++r) {
    for (int64_t t = batch.starts[r]; t < batch.starts[r + 1]; ++t) {
      std::vector<double> sums(bias.begin(), bias.end());
      for (int64_t k = 0; k < shape.taps; ++k) {
        const int64_t row = RowOf(batch, shape, batch.starts[r], batch.starts[r + 1], t, k);
        for (int64_t c = 0; row >= 0 && c < shape.channels; ++c) {
          sums[static_cast<size_t>(c)] += double{w[static_cast<size_t>(c * shape.taps + k)]} *
                                          x[static_cast<size_t>(row * shape.channels + c)];
        }
      }
      y.insert(y.end(), sums.begin(), sums.end());
    }
  }
  return y;
}

// Runs every kernel of f32, and those of bf16 and f16.
void CheckKernels(const OpDefinition& op, const device::Capabilities& caps, const OpCall& call,
                  TestTensor& y, const std::vector<float>& expected) {
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    std::vector<float> first;
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      const std::vector<float> actual = y.ToFloat();
      EXPECT_TRUE(conformance::AllClose(actual, expected, kTolerance)) << kernel->name;
      EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
      if (first.empty()) first = actual;
      EXPECT_TRUE(conformance::BitEqual(actual, first)) << kernel->name;
    }
  }
  conformance::CheckActTypes(
      {.op = op, .caps = caps, .call = call, .act_inputs = 0b1, .tolerance = kTolerance});
}

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape,
                const std::vector<int32_t>& counts) {
  const Batch batch(counts);
  Random random(3);
  const conformance::TestTensorOptions options{.misalign_bytes = 4, .row_padding_bytes = 12};
  TestTensor x(DType::kF32, {batch.view.num_tokens, shape.channels}, options);
  TestTensor w(DType::kF32, {shape.channels, shape.taps}), bias(DType::kF32, {shape.channels});
  TestTensor y(DType::kF32, {batch.view.num_tokens, shape.channels}, options);
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  bias.Set(std::vector<float>(static_cast<size_t>(shape.channels), 0.0f));
  if (shape.has_bias) bias.FillUniform(random, -1, 1);
  const TensorView inputs[] = {x.view(), w.view(), shape.has_bias ? bias.view() : TensorView{}};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  if (shape.side > 0) attributes.Set("grid", 1);
  if (shape.before > 0) attributes.Set("before", static_cast<double>(shape.before));
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch.view};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  const std::vector<float> expected =
      Expected(batch, shape, x.ToFloat(), w.ToFloat(), bias.ToFloat());
  CheckKernels(op, caps, call, y, expected);
}

void CheckIndex(const OpDefinition& op, const device::Capabilities& caps, int64_t tokens,
                int64_t positions, int64_t results, const Shape& shape) {
  Random random(5);
  const conformance::TestTensorOptions options{.misalign_bytes = 4, .row_padding_bytes = 12};
  TestTensor x(DType::kF32, {tokens, positions, shape.channels}, options);
  TestTensor w(DType::kF32, {shape.channels, shape.taps}), bias(DType::kF32, {shape.channels});
  TestTensor index(DType::kI32, {results, shape.taps});
  TestTensor y(DType::kF32, {tokens, results, shape.channels}, options);
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  bias.FillUniform(random, -1, 1);
  std::vector<int32_t> from;
  for (int64_t i = 0; i < results * shape.taps; ++i) {
    from.push_back(static_cast<int32_t>(random.Int(-1, positions)));
  }
  index.SetInt(from);
  const std::vector<float> read = x.ToFloat(), taps = w.ToFloat(), added = bias.ToFloat();
  std::vector<float> expected;
  for (int64_t i = 0; i < tokens * results * shape.channels; ++i) {
    const int64_t c = i % shape.channels, j = i / shape.channels % results;
    const int64_t t = i / shape.channels / results;
    double sum = added[static_cast<size_t>(c)];
    for (int64_t k = 0; k < shape.taps; ++k) {
      const int64_t at = from[static_cast<size_t>(j * shape.taps + k)];
      if (at < 0 || at >= positions) continue;
      sum += double{taps[static_cast<size_t>(c * shape.taps + k)]} *
             read[static_cast<size_t>((t * positions + at) * shape.channels + c)];
    }
    expected.push_back(static_cast<float>(sum));
  }
  const TensorView inputs[] = {x.view(), w.view(), bias.view(), index.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const Batch batch({static_cast<int32_t>(tokens)});
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch.view};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  CheckKernels(op, caps, call, y, expected);
}

}  // namespace

void CheckDepthwiseConvConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape along[] = {{1, 1}, {33, 15, 7}, {130, 4, 3, 0, false}, {300, 64, 20}, {16, 5}};
  for (const Shape& shape : along) CheckShape(op, caps, shape, {1, 40, 3, 7});
  const Shape on_grid[] = {{5, 1, 0, 1}, {33, 9, 0, 3, false}, {140, 25, 0, 5}, {8, 49, 0, 7}};
  for (const Shape& shape : on_grid) CheckShape(op, caps, shape, {1, 24, 60, 5});
  CheckIndex(op, caps, 3, 7, 5, {33, 9});
  CheckIndex(op, caps, 40, 4, 1, {130, 3});
  CheckIndex(op, caps, 0, 4, 2, {5, 3});
  CheckShape(op, caps, {7, 3, 1}, {});
  CheckShape(op, caps, {7, 9, 0, 3}, {});
}

}  // namespace pagemill::ops
