#include "cc/ops/latent_write/latent_write.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

TEST(LatentWrite, Conformance) {
  CheckLatentWriteConformance(LatentWriteOp(), device::DetectCapabilities());
}

// Token 0 goes to row 1 of page 2, token 1 nowhere.
TEST(LatentWrite, ByHand) {
  const int32_t slots[] = {5, -1};
  const BatchView batch{{.num_tokens = 2, .num_requests = 1},
                        {.block_size = 2, .slot_mapping = slots}};
  conformance::TestTensor latent(DType::kF32, {2, 3}), rope(DType::kF32, {2, 1});
  conformance::TestTensor cache(DType::kBF16, {3, 2, 4});
  latent.Set(std::vector<float>{1, 2, 3, 10, 20, 30});
  rope.Set(std::vector<float>{1.00390625f, 40});  // between two bf16 numbers, the lower is even
  const TensorView inputs[] = {latent.view(), rope.view(), cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(LatentWriteOp(), device::DetectCapabilities(), call)) {
    cache.Set(std::vector<float>(24, -1));
    conformance::RunKernel(*kernel, call, pool);
    std::vector<float> expected(24, -1);
    expected[20] = 1;
    expected[21] = 2;
    expected[22] = 3;
    expected[23] = 1;
    EXPECT_EQ(cache.ToFloat(), expected) << kernel->name;
  }
}

// The largest becomes the largest code; beside it 1 keeps three bits, and what is below half of the
// smallest code becomes 0.
TEST(LatentWrite, F8ByHand) {
  const int32_t slots[] = {1};
  const BatchView batch{{.num_tokens = 1, .num_requests = 1},
                        {.block_size = 2, .slot_mapping = slots}};
  conformance::TestTensor latent(DType::kF32, {1, 4}), rope(DType::kF32, {1, 1});
  constexpr LatentF8Row kRow = {.codes = 4, .rest = 1};
  static_assert(kRow.bytes() == 48 && LatentF8Row{.codes = 512, .rest = 64}.bytes() == 656);
  conformance::TestTensor cache(DType::kF8E4M3, {1, 2, kRow.bytes()});
  latent.Set(std::vector<float>{896, -1.0625f, 2.125f, 0.0009f});
  rope.Set(std::vector<float>{1.00390625f});
  const TensorView inputs[] = {latent.view(), rope.view(), cache.view()};
  Attributes attributes;
  attributes.Set("bf16_elements", 1);
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(LatentWriteOp().check(call).ok());
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(LatentWriteOp(), device::DetectCapabilities(), call)) {
    cache.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const uint8_t* const row = cache.view().Row<const uint8_t>(0) + kRow.bytes();
    float scale;
    uint16_t rest;
    std::memcpy(&scale, row + kRow.scales_offset(), sizeof(scale));
    std::memcpy(&rest, row + kRow.rest_offset(), sizeof(rest));
    EXPECT_EQ(scale, 2) << kernel->name;
    const float expected[] = {448, -0.53125f, 1.0625f, 0};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(row[i], FloatToF8E4M3(expected[i])) << kernel->name;
    EXPECT_EQ(rest, 0x3f80) << kernel->name;
  }
}

TEST(LatentWrite, ScalesArePowersOfTwo) {
  const auto scale_of = [](float largest) {
    return std::bit_cast<float>(LatentScaleBits(std::bit_cast<uint32_t>(largest)));
  };
  EXPECT_EQ(scale_of(448), 1);
  EXPECT_EQ(scale_of(std::nextafter(448.0f, 1e3f)), 2);
  EXPECT_EQ(scale_of(225), 1);
  EXPECT_EQ(scale_of(224), 0.5f);
  EXPECT_EQ(scale_of(0), 0x1p-100f);
  EXPECT_EQ(scale_of(1e38f), 0x1p100f);
  EXPECT_TRUE(std::isnan(scale_of(INFINITY)) && std::isnan(scale_of(std::nanf(""))));
}

TEST(LatentWrite, CheckNamesTheMismatch) {
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](DType dtype, std::initializer_list<int64_t> cache, const BatchView* view) {
    const TensorView inputs[] = {TensorView::Dense(nullptr, DType::kF32, {4, 24}),
                                 TensorView::Dense(nullptr, DType::kF32, {4, 1, 8}),
                                 TensorView::Dense(nullptr, dtype, cache)};
    const Attributes attributes;
    return LatentWriteOp().check(
        {.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = view});
  };
  EXPECT_TRUE(check(DType::kBF16, {5, 16, 32}, &batch).ok());
  EXPECT_EQ(check(DType::kBF16, {5, 16, 24}, &batch).message(),
            "latent_write: rows of the cache must have 32 elements, got 24");
  EXPECT_EQ(check(DType::kI8, {5, 16, 32}, &batch).message(),
            "latent_write: a latent cache must be f32, bf16 or fp8 (kv_cache_dtype), got i8");
  EXPECT_EQ(check(DType::kF8E4M3, {5, 16, 32}, &batch).message(),
            "latent_write: rows of the cache must have 48 bytes, got 32");
  EXPECT_FALSE(check(DType::kBF16, {5, 32, 32}, &batch).ok());
  EXPECT_FALSE(check(DType::kBF16, {5, 16, 32}, nullptr).ok());
}

}  // namespace
}  // namespace pagemill::ops
