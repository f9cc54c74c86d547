#include "cc/ops/wkv/wkv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Wkv, Conformance) { CheckWkvConformance(WkvOp(), device::DetectCapabilities()); }

// Three tokens. Channel 0: equal keys, no decay to speak of, and the new token counts twice.
// Channel 1: weights halve with each token. Channel 2: keys that exp() would overflow.
TEST(Wkv, ByHand) {
  const int32_t starts[] = {0, 3}, lengths[] = {3}, table[] = {1};
  const BatchView batch{
      {.num_tokens = 3, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 4, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor key(DType::kF32, {3, 3}), value(DType::kF32, {3, 3});
  conformance::TestTensor decay(DType::kF32, {3}), first(DType::kF32, {3});
  conformance::TestTensor state(DType::kF32, {2, 3, 3}), y(DType::kF32, {3, 3});
  key.Set(std::vector<float>{0, 0, 500, 0, 0, 500, 0, 0, 500});
  value.Set(std::vector<float>{3, 4, 5, 6, 8, 10, 12, 16, 25});
  const float half = std::log(std::log(2.0f));  // exp(-exp(half)) = 1/2
  decay.Set(std::vector<float>{-100, half, -100});
  first.Set(std::vector<float>{std::log(2.0f), 0, 0});
  const TensorView inputs[] = {key.view(), value.view(), decay.view(), first.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  const std::vector<float> means = {3, 4, 5, 5, 6, 7.5f, 33 / 4.0f, 26 / 2.5f, 40 / 3.0f};
  const std::vector<float> states = {21, 21, 40, 3, 1.75f, 3, 0, 0, 500};
  for (const Kernel* kernel :
       conformance::SupportedKernels(WkvOp(), device::DetectCapabilities(), call)) {
    state.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_TRUE(conformance::AllClose(y.ToFloat(), means, {.rel = 3e-6})) << kernel->name;
    const std::vector<float> pages = state.ToFloat();
    EXPECT_TRUE(conformance::AllClose(std::span(pages).subspan(9), states,
                                      {.abs = 1e-6, .rel = 3e-6}))
        << kernel->name;
  }
}

TEST(Wkv, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const Attributes attributes;
  const auto check = [&](int64_t rows, int64_t width) {
    const TensorView inputs[] = {view({9, 3, 4}), view({9, 12}), view({12}), view({12}),
                                 view({5, rows, width})};
    const TensorView outputs[] = {view({9, 12})};
    return WkvOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(3, 12), "");
  EXPECT_NE(check(3, 13).find("key must be"), std::string::npos);
  EXPECT_NE(check(2, 12).find("3 rows"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::ops
