#include "cc/ops/state_space_scan/state_space_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(StateSpaceScan, Conformance) {
  CheckStateSpaceScanConformance(StateSpaceScanOp(), device::DetectCapabilities());
}

// Two heads of one column that share B and C of two states. exp(a_log) = ln 2 and dt = 1 (the
// softplus of ln(e - 1)): a state halves with each token.
TEST(StateSpaceScan, ByHand) {
  const float one = std::log(std::exp(1.0f) - 1);
  const int32_t starts[] = {0, 2}, lengths[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor xbc(DType::kF32, {2, 6}), dt(DType::kF32, {2, 2}), y(DType::kF32, {2, 2});
  conformance::TestTensor a_log(DType::kF32, {2}), d(DType::kF32, {2}), bias(DType::kF32, {2});
  conformance::TestTensor state(DType::kF32, {2, 2, 2, 1});
  //                          x         B       C
  xbc.Set(std::vector<float>{4, 1000, 1, 10, 1, 0,  //
                             8, 2000, 2, 20, 0, 1});
  dt.Set(std::vector<float>{one, one - 1, one, one - 1});
  bias.Set(std::vector<float>{0, 1});
  a_log.Set(std::vector<float>(2, std::log(std::log(2.0f))));
  d.Set(std::vector<float>{0, 3});
  const TensorView inputs[] = {xbc.view(), dt.view(),   a_log.view(),
                               d.view(),   bias.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(StateSpaceScanOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    // Head 0: h = (4, 40), then (2 + 16, 20 + 160); y reads the first, then the second.
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{4, 1000 + 3000, 180, 45000 + 6000}, {.rel = 1e-6}))
        << kernel->name;
    const std::vector<float> states = state.ToFloat();
    EXPECT_TRUE(conformance::AllClose(std::span(states).subspan(4),
                                      std::vector<float>{18, 180, 4500, 45000}, {.rel = 1e-6}))
        << kernel->name;
  }
}

TEST(StateSpaceScan, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const Attributes attributes;
  const auto check = [&](int64_t width, int64_t rows) {
    const TensorView inputs[] = {view({9, width}), view({9, 4}), view({4}),
                                 view({4}),        view({4}),    view({5, 4, 16, 8})};
    const TensorView outputs[] = {view({9, rows})};
    return StateSpaceScanOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(32 + 2 * 16, 32), "");
  EXPECT_EQ(check(32 + 2 * 2 * 16, 32), "");
  EXPECT_EQ(check(32 + 2 * 16, 33), "state_space_scan: y must have rows of 32 elements, got 33");
  const std::string bad_rows =
      "state_space_scan: rows of xbc must hold x of 32 elements and B and C of groups that divide 4"
      " heads, 16 elements each; they have ";
  EXPECT_EQ(check(32, 32), bad_rows + "32");
  EXPECT_EQ(check(32 + 3 * 2 * 16, 32), bad_rows + "128");
}

}  // namespace
}  // namespace pagemill::ops
