#include "cc/ops/apply_adapter/apply_adapter.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/apply_adapter/packed_adapter.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

TEST(ApplyAdapter, Conformance) {
  CheckApplyAdapterConformance(ApplyAdapterOp(), device::DetectCapabilities());
}

TEST(PackedAdapter, NamesTheTensorThatDoesNotFit) {
  const TestTensor a(DType::kF32, {4, 6}), b(DType::kF32, {5, 4}), gain(DType::kF32, {6});
  const auto message = [](const AdapterTensors& tensors) {
    return PackedAdapter::Make(tensors, /*out=*/5, /*in=*/6).status().message();
  };
  EXPECT_EQ(message({.a = a.view(), .b = a.view(), .gain = {}, .offset = {}}),
            "lora_B must be f32, bf16 or f16 [5, 4], got f32 [4, 6]");
  EXPECT_EQ(message({.a = b.view(), .b = b.view(), .gain = {}, .offset = {}}),
            "lora_A must be f32, bf16 or f16 [5, 6], got f32 [5, 4]");
  EXPECT_EQ(message({.a = {}, .b = b.view(), .gain = {}, .offset = {}}),
            "lora_A must have 1 to 512 rows, got 0");
  EXPECT_EQ(message({.a = a.view(), .b = b.view(), .gain = gain.view(), .offset = {}}),
            "the gain must be f32 [5], got f32 [6]");
  EXPECT_EQ(message({.a = a.view(), .b = b.view(), .gain = {}, .offset = {}}), "");
}

TEST(PackedAdapter, CountsItsBytes) {
  const TestTensor a(DType::kBF16, {4, 6}), b(DType::kBF16, {5, 4});
  const auto packed =
      PackedAdapter::Make({.a = a.view(), .b = b.view(), .gain = {}, .offset = {}}, 5, 6);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->bytes(), 2 * (4 * 6 + 4 * 5));
  EXPECT_EQ(packed->matrices().dtype, DType::kBF16);
}

}  // namespace
}  // namespace pagemill::ops
