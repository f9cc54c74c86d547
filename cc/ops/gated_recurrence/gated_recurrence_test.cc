#include "cc/ops/gated_recurrence/gated_recurrence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(GatedRecurrence, Conformance) {
  CheckGatedRecurrenceConformance(GatedRecurrenceOp(), device::DetectCapabilities());
}

// The gates are 1/2. Channel 0 has softplus(rate) = ln(2) / 4: it halves with each token, and
// x is multiplied by sqrt(3/4). Channel 1 keeps its first value, channel 2 its last.
TEST(GatedRecurrence, ByHand) {
  const int32_t starts[] = {0, 2}, lengths[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor x(DType::kF32, {2, 3}), gate(DType::kF32, {2, 3});
  conformance::TestTensor rate(DType::kF32, {3}), state(DType::kF32, {2, 3});
  conformance::TestTensor y(DType::kF32, {2, 3});
  x.Set(std::vector<float>{4, 5, 6, 8, 9, 10});
  gate.Set(std::vector<float>(6, 0.0f));
  rate.Set(std::vector<float>{std::log(std::exp(std::log(2.0f) / 4) - 1), -100, 100});
  const TensorView inputs[] = {x.view(), gate.view(), rate.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  const float second = 2 + 8 * std::sqrt(0.75f);
  for (const Kernel* kernel :
       conformance::SupportedKernels(GatedRecurrenceOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{4, 5, 6, second, 5, 10}, {.rel = 3e-6}))
        << kernel->name;
    const std::vector<float> states = state.ToFloat();
    EXPECT_TRUE(conformance::AllClose(std::span(states).subspan(3),
                                      std::vector<float>{second, 5, 10}, {.rel = 3e-6}))
        << kernel->name;
  }
}

TEST(GatedRecurrence, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const Attributes attributes;
  const auto check = [&](int64_t width) {
    const TensorView inputs[] = {view({9, 3, 4}), view({9, 12}), view({12}), view({5, width})};
    const TensorView outputs[] = {view({9, 12})};
    return GatedRecurrenceOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(12), "");
  EXPECT_NE(check(13).find("x must be"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::ops
