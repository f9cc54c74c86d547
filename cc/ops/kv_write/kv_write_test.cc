#include "cc/ops/kv_write/kv_write.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(KvWrite, Conformance) { CheckKvWriteConformance(KvWriteOp(), device::DetectCapabilities()); }

// One head of three dimensions: the largest element is 127 scales, ties go to even, K and V have a
// scale each.
TEST(KvWrite, Int8ByHand) {
  const int32_t slots[] = {1};
  const BatchView batch{{.num_tokens = 1, .num_requests = 1},
                        {.block_size = 2, .slot_mapping = slots}};
  conformance::TestTensor k(DType::kF32, {1, 1, 3}), v(DType::kF32, {1, 1, 3});
  conformance::TestTensor cache(DType::kI8, {1, 2 * (3 + 4) * 2});
  k.Set(std::vector<float>{254, -127, 5});
  v.Set(std::vector<float>{0, 0.5f, -0.25f});
  const TensorView inputs[] = {k.view(), v.view(), cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(KvWriteOp(), device::DetectCapabilities(), call)) {
    cache.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const int8_t* block = cache.view().Data<int8_t>();
    EXPECT_EQ((std::vector<int>{block[1], block[3], block[5]}), (std::vector<int>{127, -64, 2}));
    EXPECT_EQ((std::vector<int>{block[9], block[10], block[11]}), (std::vector<int>{0, 127, -64}));
    float scales[4];
    std::memcpy(scales, block + 12, sizeof(scales));
    EXPECT_EQ(scales[1], 2.0f) << kernel->name;
    EXPECT_EQ(scales[3], 0.5f / 127.0f) << kernel->name;
  }
}

// Rows of four dimensions, which become their sums and differences over 4: k = {4, 2, 1, 1} is
// {2, 0.5, 1, 0.5} in scales of 2 / 15; v = {0, 3} with two zeros is {0.75, -0.75, 0.75, -0.75}.
TEST(KvWrite, Int4ByHand) {
  const int32_t slots[] = {5};
  const BatchView batch{{.num_tokens = 1, .num_requests = 1},
                        {.block_size = 8, .slot_mapping = slots}};
  conformance::TestTensor k(DType::kF32, {1, 1, 4}), v(DType::kF32, {1, 1, 2});
  conformance::TestTensor cache(DType::kU4, {1, 2 * (8 + 8) * 8});
  k.Set(std::vector<float>{4, 2, 1, 1});
  v.Set(std::vector<float>{0, 3});
  const TensorView inputs[] = {k.view(), v.view(), cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(KvWriteOp().check(call).ok()) << KvWriteOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(KvWriteOp(), device::DetectCapabilities(), call)) {
    cache.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const uint8_t* block = cache.view().Data<uint8_t>();
    // Codes of elements that do not exist are 0.
    EXPECT_EQ(std::vector<int>(block + 20, block + 24), (std::vector<int>{15, 9, 11, 9}));
    const uint8_t* values = block + 32 + 16;  // of tokens 4 to 7
    EXPECT_EQ((std::vector<int>{values[1], values[5], values[9], values[13]}),
              (std::vector<int>{15, 0, 15, 0}));
    float scales[16];
    std::memcpy(scales, block + 64, sizeof(scales));
    EXPECT_EQ(scales[5], 2.0f / 15) << kernel->name;
    EXPECT_EQ(scales[8 + 5], 0.75f / 15) << kernel->name;
    EXPECT_EQ(block[19], 0xff) << "no other token's byte is touched";
  }
}

// The key of Int8ByHand and the value of Int4ByHand, in blocks of four tokens.
TEST(KvWrite, KeysOfInt8AndValuesOfInt4ByHand) {
  const int32_t slots[] = {1};
  const BatchView batch{{.num_tokens = 1, .num_requests = 1},
                        {.block_size = 4, .slot_mapping = slots}};
  conformance::TestTensor k(DType::kF32, {1, 1, 4}), v(DType::kF32, {1, 1, 2});
  conformance::TestTensor cache(DType::kK8V4, {1, (4 + 4 + 8) * 4});
  k.Set(std::vector<float>{254, -127, 5, 0});
  v.Set(std::vector<float>{0, 3});
  const TensorView inputs[] = {k.view(), v.view(), cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(KvWriteOp().check(call).ok()) << KvWriteOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(KvWriteOp(), device::DetectCapabilities(), call)) {
    cache.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const int8_t* keys = cache.view().Data<int8_t>();
    EXPECT_EQ((std::vector<int>{keys[1], keys[5], keys[9], keys[13]}),
              (std::vector<int>{127, -64, 2, 0}));
    const uint8_t* values = cache.view().Data<uint8_t>() + 16;
    EXPECT_EQ((std::vector<int>{values[1], values[5], values[9], values[13]}),
              (std::vector<int>{15, 0, 15, 0}));
    float scales[8];
    std::memcpy(scales, keys + 32, sizeof(scales));
    EXPECT_EQ(scales[1], 2.0f) << kernel->name;
    EXPECT_EQ(scales[5], 0.75f / 15) << kernel->name;
    EXPECT_EQ(values[0], 0xff) << "no other token's byte is touched";
  }
}

// Keys of three dimensions, values of two: a zero stands behind them.
TEST(KvWrite, NarrowValuesByHand) {
  const int32_t slots[] = {0};
  const BatchView batch{{.num_tokens = 1, .num_requests = 1},
                        {.block_size = 1, .slot_mapping = slots}};
  conformance::TestTensor k(DType::kF32, {1, 2, 3}), v(DType::kF32, {1, 2, 2});
  conformance::TestTensor cache(DType::kF32, {1, 2 * 2 * 3});
  k.Set(std::vector<float>{1, 2, 3, 4, 5, 6});
  v.Set(std::vector<float>{7, 8, 9, 10});
  const TensorView inputs[] = {k.view(), v.view(), cache.view()};
  const Attributes attributes;
  const OpCall call{.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = &batch};
  ASSERT_TRUE(KvWriteOp().check(call).ok()) << KvWriteOp().check(call).ToString();
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(KvWriteOp(), device::DetectCapabilities(), call)) {
    cache.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_EQ(cache.ToFloat(), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 0}))
        << kernel->name;
  }
  const TensorView wide[] = {v.view(), k.view(), cache.view()};
  EXPECT_EQ(KvWriteOp()
                .check({.inputs = wide, .outputs = {}, .attributes = &attributes, .batch = &batch})
                .message(),
            "kv_write: v must have 1 to 2 elements a head, as k has, got 3");
}

TEST(KvWrite, RefusesCachesThatDoNotFit) {
  const TensorView k = TensorView::Dense(nullptr, DType::kF32, {4, 2, 8});
  const TensorView good = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * 2 * 8 * 16});
  const TensorView narrow = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * 8 * 16});
  const TensorView f16 = TensorView::Dense(nullptr, DType::kF16, {5, 2 * 2 * 8 * 16});
  const Attributes attributes;
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](const TensorView& cache, const BatchView* view) {
    const TensorView inputs[] = {k, k, cache};
    return KvWriteOp()
        .check({.inputs = inputs, .outputs = {}, .attributes = &attributes, .batch = view})
        .ok();
  };
  EXPECT_TRUE(check(good, &batch));
  EXPECT_FALSE(check(narrow, &batch));
  EXPECT_FALSE(check(f16, &batch));
  EXPECT_FALSE(check(good, nullptr));
  const int64_t with_scales = 2 * 2 * (8 + 4) * 16;
  EXPECT_TRUE(check(TensorView::Dense(nullptr, DType::kI8, {5, with_scales}), &batch));
  EXPECT_FALSE(check(TensorView::Dense(nullptr, DType::kI8, {5, 2 * 2 * 8 * 16}), &batch));
  EXPECT_TRUE(check(TensorView::Dense(nullptr, DType::kU4, {5, 2 * 2 * (8 + 8) * 16}), &batch));
  EXPECT_FALSE(check(TensorView::Dense(nullptr, DType::kU4, {5, 2 * 2 * 8 * 16}), &batch));
  const int64_t mixed = 2 * (8 + 4 + 8);
  EXPECT_TRUE(check(TensorView::Dense(nullptr, DType::kK8V4, {5, mixed * 16}), &batch));
  EXPECT_FALSE(check(TensorView::Dense(nullptr, DType::kK8V4, {5, with_scales}), &batch));
  const BatchView pairs{{}, {.block_size = 2}};
  EXPECT_FALSE(check(TensorView::Dense(nullptr, DType::kK8V4, {5, mixed * 2}), &pairs));
  EXPECT_FALSE(check(TensorView::Dense(nullptr, DType::kU4, {5, 2 * 2 * (8 + 8) * 2}), &pairs));
}

}  // namespace
}  // namespace pagemill::ops
