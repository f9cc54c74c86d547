#include "cc/ops/depthwise_conv/depthwise_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(DepthwiseConv, Conformance) {
  CheckDepthwiseConvConformance(DepthwiseConvOp(), device::DetectCapabilities());
}

// Requests of two and of one token, two channels, three taps around a token.
TEST(DepthwiseConv, ByHand) {
  const int32_t starts[] = {0, 2, 3};
  BatchView batch;
  batch.num_tokens = 3;
  batch.num_requests = 2;
  batch.query_start = starts;
  conformance::TestTensor x(DType::kF32, {3, 2}), w(DType::kF32, {2, 3}), bias(DType::kF32, {2});
  conformance::TestTensor y(DType::kF32, {3, 2});
  x.Set(std::vector<float>{1, 2, 3, 4, 5, 6});
  w.Set(std::vector<float>{1, 10, 100, 0, 1, 0});
  bias.Set(std::vector<float>{0.5f, 0});
  const TensorView inputs[] = {x.view(), w.view(), bias.view()};
  const TensorView outputs[] = {y.view()};
  Attributes attributes;
  attributes.Set("before", 1);
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(DepthwiseConvOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_EQ(y.ToFloat(), (std::vector<float>{310.5f, 2, 31.5f, 4, 50.5f, 6})) << kernel->name;
  }
}

TEST(DepthwiseConv, OfTokensInOnePlaceTheLastIsRead) {
  const int32_t starts[] = {0, 4}, places[] = {0, 5, 5, 0, 5, 6, 0, 5, 5, 0, 5, 5};
  BatchView batch;
  batch.num_tokens = 4;
  batch.num_requests = 1;
  batch.query_start = starts;
  batch.grid_positions = places;
  Attributes attributes;
  attributes.Set("grid", 1);
  const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 2}),
                               TensorView::Dense(nullptr, DType::kF32, {2, 9}), {}};
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  std::vector<int32_t> rows(static_cast<size_t>(4 * 9));
  ASSERT_EQ(kDepthwiseRowsPlan.bytes(call), static_cast<int64_t>(rows.size() * sizeof(int32_t)));
  kDepthwiseRowsPlan.make(call, std::as_writable_bytes(std::span(rows)));
  const std::vector<int32_t> at_5 = {-1, -1, -1, -1, 3, 1, -1, -1, -1};
  const std::vector<int32_t> at_6 = {-1, -1, -1, 3, 1, -1, -1, -1, -1};
  for (size_t t = 0; t < 4; ++t) {
    const auto listed = std::span(rows).subspan(t * 9, 9);
    EXPECT_TRUE(std::ranges::equal(listed, t == 1 ? at_6 : at_5)) << t;
  }
}

TEST(DepthwiseConv, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](const TensorView& w, const TensorView& bias, double before, double grid) {
    Attributes attributes;
    attributes.Set("before", before);
    attributes.Set("grid", grid);
    const TensorView inputs[] = {view({9, 6}), w, bias}, outputs[] = {view({9, 6})};
    return DepthwiseConvOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(view({6, 1, 4}), view({6}), 3, 0), "");
  EXPECT_EQ(check(view({6, 3, 3}), {}, 0, 1), "");
  EXPECT_EQ(check(view({6, 65}), {}, 0, 0), "depthwise_conv: w must have 1 to 64 taps, got 65");
  EXPECT_EQ(check(view({6, 4}), {}, 0, 1),
            "depthwise_conv: taps on the grid must be the square of an odd number, got 4");
  EXPECT_EQ(check(view({6, 9}), {}, 4, 1), "depthwise_conv: taps on the grid need before=0");
  EXPECT_NE(check(view({6, 4}), {}, 4, 0), "");
  EXPECT_NE(check(view({5, 4}), {}, 0, 0), "");
  EXPECT_NE(check(view({6, 4}), view({5}), 0, 0), "");
}

TEST(DepthwiseConv, RefusesResultsThatAreNotThoseOfTheIndex) {
  const auto check = [](int64_t read, int64_t written, double before) {
    Attributes attributes;
    attributes.Set("before", before);
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {9, read}),
                                 TensorView::Dense(nullptr, DType::kF32, {6, 4}),
                                 {},
                                 TensorView::Dense(nullptr, DType::kI32, {5, 4})};
    const TensorView outputs[] = {TensorView::Dense(nullptr, DType::kF32, {9, written})};
    return DepthwiseConvOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(18, 30, 0), "");
  EXPECT_EQ(check(18, 24, 0),
            "depthwise_conv: rows of 18 and 24 elements are not positions and 5 results of 6"
            " channels");
  EXPECT_NE(check(17, 30, 0), "");
  EXPECT_EQ(check(18, 30, 1), "depthwise_conv: an index needs before=0 and grid=0");
}

}  // namespace
}  // namespace pagemill::ops
