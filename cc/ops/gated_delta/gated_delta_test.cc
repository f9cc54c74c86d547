#include "cc/ops/gated_delta/gated_delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(GatedDelta, Conformance) {
  CheckGatedDeltaConformance(GatedDeltaOp(), device::DetectCapabilities());
}

// Two heads of one value that share q and k of two elements. exp(a_log) = ln 2 and softplus = 1
// (of ln(e - 1)): a state halves with each token. Head 0 has a share of 1/2, head 1 of all.
TEST(GatedDelta, ByHand) {
  const float one = std::log(std::exp(1.0f) - 1);
  const int32_t starts[] = {0, 2}, lengths[] = {2}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 2, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor qkv(DType::kF32, {2, 6}), b(DType::kF32, {2, 2}), a(DType::kF32, {2, 2});
  conformance::TestTensor a_log(DType::kF32, {2}), bias(DType::kF32, {2}), y(DType::kF32, {2, 2});
  conformance::TestTensor state(DType::kF32, {2, 2, 2, 1});
  //                          q         k        v
  qkv.Set(std::vector<float>{3e3f, 0, 4e3f, 0, 8, 800,  //
                             0, 2e3f, 3e3f, 4e3f, 10, 1000});
  b.Set(std::vector<float>{0, 100, 0, 100});
  a.Set(std::vector<float>{one, one - 1, one, one - 1});
  bias.Set(std::vector<float>{0, 1});
  a_log.Set(std::vector<float>(2, std::log(std::log(2.0f))));
  const TensorView inputs[] = {qkv.view(),   b.view(),    a.view(),
                               a_log.view(), bias.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  // Head 0: S = (4, 0); then S = (2, 0), of which k = (0.6, 0.8) reads 1.2, so that (10 - 1.2) / 2
  // is written: S = (4.64, 3.52). Head 1: (800, 0); (400, 0), 240; 760: (856, 608).
  const float r = std::sqrt(0.5f);
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(GatedDeltaOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(
        y.ToFloat(), std::vector<float>{4 * r, 800 * r, 3.52f * r, 608 * r}, {.rel = 1e-6}))
        << kernel->name;
    const std::vector<float> states = state.ToFloat();
    EXPECT_TRUE(conformance::AllClose(std::span(states).subspan(4),
                                      std::vector<float>{4.64f, 3.52f, 856, 608}, {.rel = 1e-6}))
        << kernel->name;
  }
}

TEST(GatedDelta, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const auto check = [&](int64_t width, int64_t rows, int64_t keys, int by_group,
                         double share_scale = 1, int in_turn = 0) {
    Attributes attributes;
    attributes.Set("in_turn", in_turn);
    attributes.Set("share_scale", share_scale);
    attributes.Set("by_group", by_group);
    const TensorView inputs[] = {view({9, width}), view({9, 2, 2}), view({9, 4}),
                                 view({4}),        view({4}),       view({5, 4, keys, 8})};
    const TensorView outputs[] = {view({9, rows})};
    return GatedDeltaOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(32 + 2 * 16, 32, 16, 0), "");
  EXPECT_EQ(check(32 + 2 * 2 * 16, 32, 16, 1), "");
  EXPECT_EQ(check(64, 33, 16, 0), "gated_delta: y must have rows of 32 elements, got 33");
  {
    const TensorView rows = view({9, 5}), state = view({5, 4, 16, 8});
    const TensorView inputs[] = {view({9, 64}), view({9, 4}), rows, view({4}), view({5}), state};
    const TensorView outputs[] = {view({9, 32})};
    const Attributes attributes;
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    EXPECT_EQ(GatedDeltaOp().check(call).message(),
              "gated_delta: a must have rows of 4 elements, or of 64, got 5");
  }
  EXPECT_EQ(check(64, 32, 257, 0), "gated_delta: keys must have at most 256 elements, got 257");
  const std::string bad_rows =
      "gated_delta: rows of qkv must hold v of 32 elements, and q and k of groups that divide 4"
      " heads, 16 elements each; they have ";
  EXPECT_EQ(check(32, 32, 16, 0), bad_rows + "32");
  EXPECT_EQ(check(32 + 3 * 2 * 16, 32, 16, 0), bad_rows + "128");
  EXPECT_NE(check(64, 32, 16, 2).find("attribute by_group"), std::string::npos);
  EXPECT_EQ(check(64, 32, 16, 1, 1, 1),
            "gated_delta: attributes by_group and in_turn exclude each other");
  EXPECT_EQ(check(64, 32, 16, 0, 2.5),
            "gated_delta: attribute share_scale must be a number from 0 to 2");
}

}  // namespace
}  // namespace pagemill::ops
