#include "cc/ops/all_reduce/all_reduce.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(AllReduce, Conformance) {
  CheckAllReduceConformance(AllReduceOp(), device::DetectCapabilities());
}

TEST(AllReduce, CheckNamesTheOperandOrAttribute) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {3, 8});
  const TensorView y = TensorView::Dense(nullptr, DType::kF32, {3, 9});
  Attributes attributes;
  attributes.Set("ranks", 2);
  const auto message = [&](const TensorView& output) {
    return AllReduceOp()
        .check({.inputs = {&x, 1}, .outputs = {&output, 1}, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(message(x), "");
  EXPECT_NE(message(y).find("all_reduce: y must be"), std::string::npos) << message(y);
  const TensorView bf16 = TensorView::Dense(nullptr, DType::kBF16, {3, 8});
  EXPECT_NE(message(bf16).find("all_reduce: y must be f32"), std::string::npos) << message(bf16);
  attributes.Set("axis", 4);
  EXPECT_NE(message(x).find("attribute axis must be"), std::string::npos) << message(x);
  attributes = {};
  attributes.Set("ranks", 65);
  EXPECT_NE(message(x).find("attribute ranks must be"), std::string::npos) << message(x);
}

}  // namespace
}  // namespace pagemill::ops
