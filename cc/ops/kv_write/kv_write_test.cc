#include "cc/ops/kv_write/kv_write.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/kv_write/kv_write_conformance.h"

namespace pagemill::ops {
namespace {

TEST(KvWrite, Conformance) { CheckKvWriteConformance(KvWriteOp(), device::DetectCapabilities()); }

TEST(KvWrite, RefusesCachesThatDoNotFit) {
  const TensorView k = TensorView::Dense(nullptr, DType::kF32, {4, 2, 8});
  const TensorView good = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * 2 * 8 * 16});
  const TensorView narrow = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * 8 * 16});
  const TensorView f16 = TensorView::Dense(nullptr, DType::kF16, {5, 2 * 2 * 8 * 16});
  const Attributes attributes;
  const BatchView batch{.block_size = 16};
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
}

}  // namespace
}  // namespace pagemill::ops
