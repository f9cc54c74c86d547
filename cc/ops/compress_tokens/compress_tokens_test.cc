#include "cc/ops/compress_tokens/compress_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(CompressTokens, Conformance) {
  CheckCompressTokensConformance(CompressTokensOp(), device::DetectCapabilities());
}

// Runs tokens of one channel with windows of two; gates are 0, so that means have the weights of
// the biases.
std::vector<float> RunOneChannel(const Kernel& kernel, int64_t parts, const std::vector<float>& x,
                                 const std::vector<float>& bias) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / parts;
  const int32_t count = static_cast<int32_t>(tokens), starts[] = {0, count}, lengths[] = {count};
  const int32_t table[] = {1};
  const BatchView batch{
      {.num_tokens = count, .num_requests = 1, .query_start = starts, .seq_lens = lengths},
      {.block_size = 16, .block_table = table, .block_table_stride = 1}};
  conformance::TestTensor rows(DType::kF32, {tokens, parts}), gate(DType::kF32, {tokens, parts});
  conformance::TestTensor biases(DType::kF32, {2, parts}), state(DType::kF32, {2, parts, 3, 1});
  conformance::TestTensor y(DType::kF32, {tokens, 1});
  rows.Set(x);
  gate.Set(std::vector<float>(x.size(), 0.0f));
  biases.Set(bias);
  state.Poison();
  y.Poison();
  const TensorView inputs[] = {rows.view(), gate.view(), biases.view(), state.view()};
  const TensorView outputs[] = {y.view()};
  const Attributes attributes;
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  conformance::RunKernel(kernel, call, pool);
  return y.ToFloat();
}

// The second token of a window counts three times as much as the first. With two parts, the first
// ones (1, 2, 3, ...) of a window count as much as the second ones of the window behind.
TEST(CompressTokens, ByHand) {
  const float log3 = std::log(3.0f);
  for (const Kernel& kernel : CompressTokensOp().kernels) {
    if (!kernel.supports(device::DetectCapabilities(), {})) continue;
    EXPECT_TRUE(conformance::AllClose(
        RunOneChannel(kernel, 1, {0, 4, 8, 0, 9}, {0, log3}),
        std::vector<float>{0, 3, 0, 2, 0}, {.abs = 1e-5}))
        << kernel.name;
    EXPECT_TRUE(conformance::AllClose(
        RunOneChannel(kernel, 2, {1, 0, 2, 4, 3, 8, 4, 0, 5, 0}, {0, 0, 0, log3}),
        // (0 + 3 * 4) / 4, and (1 + 2 + 8 + 3 * 0) / 6.
        std::vector<float>{0, 3, 0, 11.0f / 6, 0}, {.abs = 1e-5}))
        << kernel.name;
  }
}

TEST(CompressTokens, RefusesMismatchedOperands) {
  const auto view = [](std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, DType::kF32, dims);
  };
  const Attributes attributes;
  const auto check = [&](std::initializer_list<int64_t> state) {
    const TensorView inputs[] = {view({9, 12}), view({9, 12}), view({4, 12}), view(state)};
    const TensorView outputs[] = {view({9, state.begin()[3]})};
    return CompressTokensOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check({5, 1, 3, 12}), "");
  EXPECT_EQ(check({5, 2, 3, 6}), "");
  EXPECT_EQ(check({5, 2, 3, 12}),
            "compress_tokens: rows of x have 12 elements, states have 2 parts of 12");
  EXPECT_EQ(check({5, 3, 3, 4}), "compress_tokens: states must be [1 or 2, 3, channels]");
}

}  // namespace
}  // namespace pagemill::ops
