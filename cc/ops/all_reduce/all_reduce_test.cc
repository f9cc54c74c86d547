#include "cc/ops/all_reduce/all_reduce.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/all_reduce/all_reduce_conformance.h"

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
  attributes = {};
  attributes.Set("ranks", 65);
  EXPECT_NE(message(x).find("attribute ranks must be"), std::string::npos) << message(x);
}

}  // namespace
}  // namespace pagemill::ops
