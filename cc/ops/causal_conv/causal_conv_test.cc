#include "cc/ops/causal_conv/causal_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(CausalConv, Conformance) {
  CheckCausalConvConformance(CausalConvOp(), device::DetectCapabilities());
}

float Silu(float x) { return x / (1 + std::exp(-x)); }

// Two channels, three taps; the second step continues from the state of the first.
TEST(CausalConv, ByHand) {
  const int32_t starts[] = {0, 2}, first[] = {2}, second[] = {4}, table[] = {1};
  BatchView batch{{.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = first},
                  {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor x(DType::kF32, {2, 2}), w(DType::kF32, {2, 3}), bias(DType::kF32, {2});
  conformance::TestTensor state(DType::kF32, {2, 2, 2}), y(DType::kF32, {2, 2});
  w.Set(std::vector<float>{1, 10, 100, 0, 0, 1});
  bias.Set(std::vector<float>{0.5f, 0});
  const TensorView inputs[] = {x.view(), w.view(), bias.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(CausalConvOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    batch.seq_lens = first;
    x.Set(std::vector<float>{0.01f, 1, 0.02f, 2});
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{Silu(1.5f), Silu(1), Silu(2.6f), Silu(2)}, {.rel = 1e-6}))
        << kernel->name;
    batch.seq_lens = second;
    x.Set(std::vector<float>{0.03f, 3, 0.04f, 4});
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{Silu(3.71f), Silu(3), Silu(4.82f), Silu(4)}, {.rel = 1e-6}))
        << kernel->name;
  }
}

TEST(CausalConv, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  Attributes attributes;
  const auto check = [&](const TensorView& w, const TensorView& bias, const TensorView& state) {
    const TensorView inputs[] = {view({9, 6}), w, bias, state}, outputs[] = {view({9, 6})};
    return CausalConvOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(view({6, 1, 4}), view({6}), view({5, 3, 6})), "");
  EXPECT_EQ(check(view({6, 4}), {}, view({5, 3, 6})), "");
  EXPECT_EQ(check(view({6, 4}), {}, view({5, 4, 6})),
            "causal_conv: a state must have 3 rows, got 4");
  EXPECT_EQ(check(view({6, 9}), {}, view({5, 8, 6})),
            "causal_conv: w must have 2 to 8 taps, got 9");
  EXPECT_EQ(check(view({6, 4}), view({4}), view({5, 3, 6})),
            "causal_conv: bias must be f32 [C=6], got f32 [4]");
  attributes.Set("kind", 3);
  EXPECT_EQ(check(view({6, 4}), {}, view({5, 3, 6})),
            "causal_conv: attribute kind must be SiLU or the identity, got 3");
}

}  // namespace
}  // namespace pagemill::ops
