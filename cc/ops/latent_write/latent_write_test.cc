#include "cc/ops/latent_write/latent_write.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

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
            "latent_write: a latent cache must be f32 or bf16 (kv_cache_dtype), got i8");
  EXPECT_FALSE(check(DType::kBF16, {5, 32, 32}, &batch).ok());
  EXPECT_FALSE(check(DType::kBF16, {5, 16, 32}, nullptr).ok());
}

}  // namespace
}  // namespace pagemill::ops
