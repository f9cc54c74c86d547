#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/rotary/rotary.h"

namespace pagemill::ops {
namespace {

TEST(RotaryKvWrite, SameBitsAsTheTwoOps) {
  const OpDefinition ops[] = {RotaryOp(), KvWriteOp(), RotaryKvWriteOp()};
  CheckRotaryKvWriteConformance(ops, device::DetectCapabilities());
}

TEST(RotaryKvWrite, RefusesWhatASingleOpRefuses) {
  const TensorView q = TensorView::Dense(nullptr, DType::kF32, {4, 2, 8});
  const TensorView k = TensorView::Dense(nullptr, DType::kF32, {4, 1, 8});
  const TensorView positions = TensorView::Dense(nullptr, DType::kI32, {4});
  const TensorView frequencies = TensorView::Dense(nullptr, DType::kF32, {4});
  const TensorView many = TensorView::Dense(nullptr, DType::kF32, {5});
  const TensorView cache = TensorView::Dense(nullptr, DType::kBF16, {5, 2 * 8 * 16});
  const Attributes attributes;
  const BatchView batch{{}, {.block_size = 16}};
  const auto check = [&](std::vector<TensorView> inputs, const BatchView* view = nullptr) {
    const TensorView outputs[] = {q, k};
    return RotaryKvWriteOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = view})
        .message();
  };
  EXPECT_EQ(check({q, k, positions, frequencies, k, cache}, &batch), "");
  EXPECT_NE(check({q, k, positions, frequencies, k, cache}), "") << "no block size";
  EXPECT_NE(check({q, k, positions, many, k, cache}, &batch), "") << "more than half the head";
  EXPECT_NE(check({q, k, positions, frequencies, q, cache}, &batch), "") << "v has other heads";
  EXPECT_NE(check({q, k, positions, frequencies, k}, &batch), "") << "no cache";
}

}  // namespace
}  // namespace pagemill::ops
