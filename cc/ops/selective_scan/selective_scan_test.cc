#include "cc/ops/selective_scan/selective_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(SelectiveScan, Conformance) {
  CheckSelectiveScanConformance(SelectiveScanOp(), device::DetectCapabilities());
}

// Two channels of two states. softplus = 1 (of ln(e - 1)); the first state halves with each token,
// the second becomes a quarter.
TEST(SelectiveScan, ByHand) {
  const float one = std::log(std::exp(1.0f) - 1), half = std::log(std::log(2.0f));
  const int32_t starts[] = {0, 2}, lengths[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor x(DType::kF32, {2, 2}), dt(DType::kF32, {2, 2}), y(DType::kF32, {2, 2});
  conformance::TestTensor b(DType::kF32, {2, 2}), c(DType::kF32, {2, 2}), d(DType::kF32, {2});
  conformance::TestTensor a_log(DType::kF32, {2, 2}), bias(DType::kF32, {2});
  conformance::TestTensor state(DType::kF32, {2, 2, 2});
  x.Set(std::vector<float>{4, 1000, 8, 2000});
  dt.Set(std::vector<float>{one, one - 1, one, one - 1});
  bias.Set(std::vector<float>{0, 1});
  b.Set(std::vector<float>{1, 10, 2, 20});
  c.Set(std::vector<float>{1, 0, 0, 1});
  const float quarter = half + std::log(2.0f);
  a_log.Set(std::vector<float>{half, quarter, half, quarter});
  d.Set(std::vector<float>{0, 3});
  const TensorView inputs[] = {x.view(),     dt.view(), b.view(),    c.view(),
                               a_log.view(), d.view(),  bias.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(SelectiveScanOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    // Channel 0: h = (4, 40), then (2 + 16, 10 + 160); y reads the first, then the second.
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{4, 1000 + 3000, 170, 42500 + 6000}, {.rel = 2e-6}))
        << kernel->name;
    const std::vector<float> states = state.ToFloat();
    EXPECT_TRUE(conformance::AllClose(std::span(states).subspan(4),
                                      std::vector<float>{18, 4500, 170, 42500}, {.rel = 2e-6}))
        << kernel->name;
  }
}

TEST(SelectiveScan, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const Attributes attributes;
  const auto check = [&](int64_t states, int64_t width) {
    const TensorView inputs[] = {view({9, 12}),     view({9, 12}), view({9, states}),
                                 view({9, states}), view({12, states}), view({12}),
                                 view({12}),        view({5, states, width})};
    const TensorView outputs[] = {view({9, 12})};
    return SelectiveScanOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(16, 12), "");
  EXPECT_NE(check(16, 13).find("x must be"), std::string::npos);
  EXPECT_EQ(check(65, 12), "selective_scan: a channel must have at most 64 states, got 65");
}

}  // namespace
}  // namespace pagemill::ops
