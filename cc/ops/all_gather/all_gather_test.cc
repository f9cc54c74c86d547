#include "cc/ops/all_gather/all_gather.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(AllGather, Conformance) {
  CheckAllGatherConformance(AllGatherOp(), device::DetectCapabilities());
}

TEST(AllGather, CheckNamesTheMismatch) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {3, 5});
  const TensorView y = TensorView::Dense(nullptr, DType::kF32, {3, 9});
  const auto message = [&](int ranks, int rank) {
    Attributes attributes;
    attributes.Set("ranks", ranks);
    attributes.Set("rank", rank);
    return AllGatherOp()
        .check({.inputs = {&x, 1}, .outputs = {&y, 1}, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(message(2, 1), "");
  EXPECT_EQ(message(2, 0), "all_gather: rank 0 of 2 has 4 of 9 columns, x has 5");
  EXPECT_NE(message(2, 2).find("attribute rank must be"), std::string::npos) << message(2, 2);
  EXPECT_NE(message(0, 0).find("attribute ranks must be"), std::string::npos) << message(0, 0);
}

}  // namespace
}  // namespace pagemill::ops
