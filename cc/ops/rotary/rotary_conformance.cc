// What every kernel of `rotary` has to pass: closeness to the reference within the contract's
// bound for odd sizes, and the checks of rowwise_conformance.h.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

struct Shape {
  int64_t q_heads, k_heads, head_dim, pairs;
};

void CheckShape(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape,
                bool interleaved, int32_t begin = 0, int32_t offset = 0) {
  constexpr int64_t kTokens = 9;
  conformance::RowCase c{.op = op};
  c.AddRows({kTokens, shape.q_heads, shape.head_dim});
  c.AddRows({kTokens, shape.k_heads, shape.head_dim});
  c.inputs.emplace_back(DType::kI32, std::initializer_list<int64_t>{kTokens});
  c.input_has_rows.push_back(true);
  const int32_t positions[kTokens] = {0, 1, 2, 77, 4095, 65537, 100003, 131071, 131072};
  c.inputs.back().SetInt(positions);
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < shape.pairs; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(shape.pairs);
    inv_freq.push_back(static_cast<float>(std::pow(10000.0, -exponent)));
  }
  c.AddShared({shape.pairs}).Set(inv_freq);
  c.AddOutput({kTokens, shape.q_heads, shape.head_dim});
  c.AddOutput({kTokens, shape.k_heads, shape.head_dim});
  c.attributes.Set("interleaved", interleaved ? 1 : 0);
  c.attributes.Set("mscale", 1.25);
  c.attributes.Set("begin", begin);
  c.attributes.Set("offset", offset);
  c.tolerance = {.abs = 4e-7 * (2 + 2) * 1.25};  // the contract's bound at |x| <= 2
  CheckRowCase(c, caps);
}

// Each pair is rotated by one dimension of the position: sections of pairs, or interleaved
// dimensions.
void CheckGrid(const OpDefinition& op, const device::Capabilities& caps, const Shape& shape,
               bool sections) {
  constexpr int64_t kTokens = 5, kDims = 3;
  SCOPED_TRACE(::testing::Message() << shape.pairs << " pairs, sections " << sections);
  Random random(3);
  TestTensor q(DType::kF32, {kTokens, shape.q_heads, shape.head_dim}, {.row_padding_bytes = 4});
  TestTensor k(DType::kF32, {kTokens, shape.k_heads, shape.head_dim}, {.misalign_bytes = 4});
  TestTensor positions(DType::kI32, {kTokens, kDims}, {.row_padding_bytes = 4});
  TestTensor inv_freq(DType::kF32, {kDims, shape.pairs}, {.row_padding_bytes = 8});
  TestTensor q_out(DType::kF32, {kTokens, shape.q_heads, shape.head_dim});
  TestTensor k_out(DType::kF32, {kTokens, shape.k_heads, shape.head_dim});
  q.FillUniform(random, -2, 2);
  k.FillUniform(random, -2, 2);
  const int32_t own[kTokens * kDims] = {0, 0, 0, 1, 2, 3, 7, 7, 7, 4000, 1, 65537, 9, 131072, 2};
  positions.SetInt(own);
  std::vector<float> frequencies;
  for (int64_t d = 0; d < kDims; ++d) {
    for (int64_t i = 0; i < shape.pairs; ++i) {
      const int64_t dim = sections ? i * kDims / shape.pairs : i % kDims;
      frequencies.push_back(dim == d ? 1.0f / static_cast<float>(i + 1) : 0.0f);
    }
  }
  inv_freq.Set(frequencies);
  Attributes attributes;
  const TensorView inputs[] = {q.view(), k.view(), positions.view(), inv_freq.view()};
  const TensorView outputs[] = {q_out.view(), k_out.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    SCOPED_TRACE(kernel->name);
    q_out.Poison();
    conformance::RunKernel(*kernel, call, pool);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < shape.pairs; ++i) {
        const int64_t dim = sections ? i * kDims / shape.pairs : i % kDims;
        const float angle = static_cast<float>(own[t * kDims + dim]) / static_cast<float>(i + 1);
        const float* x = q.view().Row<float>(t);
        const double expected = x[i] * std::cos(angle) - x[i + shape.pairs] * std::sin(angle);
        // An angle by multiplication differs from one by division in its last bit.
        EXPECT_NEAR(q_out.view().Row<float>(t)[i], expected, 2e-6 + 4e-7 * std::abs(angle))
            << "token " << t << ", pair " << i;
      }
    }
  }
}

// Equal positions in all dimensions give the bits of one dimension.
void CheckEqualDimensions(const OpDefinition& op, const device::Capabilities& caps) {
  constexpr int64_t kTokens = 4, kDims = 3, kHeadDim = 22, kPairs = 11;
  Random random(5);
  TestTensor x(DType::kF32, {kTokens, 1, kHeadDim});
  TestTensor one(DType::kI32, {kTokens}), many(DType::kI32, {kTokens, kDims});
  TestTensor one_freq(DType::kF32, {kPairs}), many_freq(DType::kF32, {kDims, kPairs});
  TestTensor q(DType::kF32, {kTokens, 1, kHeadDim}), k(DType::kF32, {kTokens, 1, kHeadDim});
  x.FillUniform(random, -2, 2);
  one.SetInt(std::vector<int32_t>{0, 3, 77, 100003});
  many.SetInt(std::vector<int32_t>{0, 0, 0, 3, 3, 3, 77, 77, 77, 100003, 100003, 100003});
  std::vector<float> frequencies(kPairs), by_dim(kDims * kPairs, 0.0f);
  for (int64_t i = 0; i < kPairs; ++i) {
    frequencies[i] = by_dim[(i % kDims) * kPairs + i] = 1.0f / static_cast<float>(1 + 3 * i);
  }
  one_freq.Set(frequencies);
  many_freq.Set(by_dim);
  Attributes attributes;
  const TensorView outputs[] = {q.view(), k.view()};
  const TensorView single[] = {x.view(), x.view(), one.view(), one_freq.view()};
  const TensorView several[] = {x.view(), x.view(), many.view(), many_freq.view()};
  const OpCall calls[] = {{.inputs = single, .outputs = outputs, .attributes = &attributes},
                          {.inputs = several, .outputs = outputs, .attributes = &attributes}};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, calls[0])) {
    std::vector<uint8_t> bytes[2];
    for (int i = 0; i < 2; ++i) {
      q.Poison();
      conformance::RunKernel(*kernel, calls[i], pool);
      bytes[i] = q.Bytes();
    }
    EXPECT_TRUE(bytes[0] == bytes[1]) << kernel->name;
  }
}

}  // namespace

void CheckRotaryConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const Shape shapes[] = {{9, 3, 64, 32}, {4, 1, 256, 128}, {2, 2, 80, 16}, {3, 1, 10, 5},
                          {1, 1, 2, 1},   {2, 1, 72, 36},   {1, 2, 96, 20}, {1, 1, 16, 7}};
  for (const Shape& shape : shapes) {
    CheckShape(op, caps, shape, /*interleaved=*/false);
    CheckShape(op, caps, shape, /*interleaved=*/true);
    const auto last = static_cast<int32_t>(shape.head_dim - 2 * shape.pairs);
    CheckShape(op, caps, shape, /*interleaved=*/shape.pairs % 2 == 0, last, /*offset=*/-127);
  }
  for (const Shape& shape : {Shape{4, 1, 80, 16}, Shape{2, 3, 64, 32}, Shape{1, 1, 10, 5}}) {
    CheckGrid(op, caps, shape, /*sections=*/true);
    CheckGrid(op, caps, shape, /*sections=*/false);
  }
  CheckEqualDimensions(op, caps);
}

}  // namespace pagemill::ops
