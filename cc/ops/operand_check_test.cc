#include "cc/ops/operand_check.h"

#include <gtest/gtest.h>

namespace pagemill::ops {
namespace {

class OperandCheckTest : public testing::Test {
 protected:
  // The view's memory is never looked at.
  static TensorView View(std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    return TensorView::Dense(nullptr, dtype, dims);
  }
  OpCall Call() { return {.inputs = inputs_, .outputs = outputs_, .attributes = &attributes_}; }

  std::vector<TensorView> inputs_;
  std::vector<TensorView> outputs_;
  Attributes attributes_;
};

TEST_F(OperandCheckTest, SymbolsAgreeAcrossOperands) {
  inputs_ = {View({7, 9, 64}), View({576})};
  outputs_ = {View({7, 576})};
  const OpCall call = Call();
  OperandCheck check("op", call, 2, 1);
  check.Input(0, "x", DType::kF32, "N,H*");
  check.Input(1, "w", DType::kF32, "H");
  check.Output(0, "y", DType::kF32, "N,H*");
  EXPECT_TRUE(check.Result().ok()) << check.Result().ToString();
  EXPECT_EQ(check.Dim('N'), 7);
  EXPECT_EQ(check.Dim('H'), 576);
  EXPECT_EQ(check.Dim('Z'), 0);
}

TEST_F(OperandCheckTest, LeadingStarTakesTheLastDimension) {
  inputs_ = {View({7, 9, 64}), View({64})};
  const OpCall call = Call();
  OperandCheck check("op", call, 2, 0);
  check.Input(1, "w", DType::kF32, "H");
  check.Input(0, "x", DType::kF32, "*,H");
  EXPECT_TRUE(check.ok());
}

TEST_F(OperandCheckTest, MessageNamesOpOperandExpectedAndGot) {
  inputs_ = {View({7, 64}), View({65})};
  const OpCall call = Call();
  OperandCheck check("layer_norm", call, 2, 0);
  check.Input(0, "x", DType::kF32, "N,H*");
  check.Input(1, "w", DType::kF32, "H");
  EXPECT_EQ(check.Result().message(), "layer_norm: w must be f32 [H=64], got f32 [65]");
}

TEST_F(OperandCheckTest, RankAndDtypeMatter) {
  inputs_ = {View({7, 9, 64}), View({7}, DType::kI32)};
  const OpCall call = Call();
  OperandCheck rank("op", call, 2, 0);
  rank.Input(0, "x", DType::kF32, "N,H");
  EXPECT_FALSE(rank.ok());
  OperandCheck dtype("op", call, 2, 0);
  dtype.Input(1, "ids", DType::kF32, "N");
  EXPECT_EQ(dtype.Result().message(), "op: ids must be f32 [N], got i32 [7]");
}

TEST_F(OperandCheckTest, ActivationsHaveOneType) {
  inputs_ = {View({7, 64}, DType::kBF16), View({7, 64}, DType::kF16)};
  outputs_ = {View({7, 64}, DType::kBF16), View({7, 64})};
  const OpCall call = Call();
  OperandCheck good("op", call, 2, 2);
  good.ActInput(0, "x", "N,H");
  good.ActOutput(0, "y", "N,H");
  good.ActOrF32Output(0, "y", "N,H");
  good.ActOrF32Output(1, "logits", "N,H");
  EXPECT_TRUE(good.ok()) << good.Result().ToString();
  good.ActInput(1, "z", "N,H");
  EXPECT_EQ(good.Result().message(), "op: z must be bf16 [N=7, H=64], got f16 [7, 64]");
  OperandCheck wide("op", call, 2, 2);
  wide.ActOutput(1, "logits", "N,H");
  wide.ActOrF32Output(0, "y", "N,H");
  EXPECT_EQ(wide.Result().message(), "op: y must be f32 [N=7, H=64], got bf16 [7, 64]");
}

TEST_F(OperandCheckTest, NotEveryTypeIsOneOfActivations) {
  inputs_ = {View({7}, DType::kI32)};
  const OpCall call = Call();
  OperandCheck check("op", call, 1, 0);
  check.ActInput(0, "x", "N");
  EXPECT_EQ(check.Result().message(), "op: x must be f32, bf16 or f16 [N], got i32 [7]");
}

TEST_F(OperandCheckTest, FirstFailureStays) {
  const OpCall call = Call();
  OperandCheck check("op", call, 1, 0);
  check.Input(0, "x", DType::kF32, "N");  // not read: the count is wrong
  check.Require(false, "later");
  EXPECT_EQ(check.Result().message(), "op: takes 1 inputs and gives 0 outputs, got 0 and 0");
}

TEST_F(OperandCheckTest, IntegerAttributes) {
  attributes_.Set("kind", 2);
  attributes_.Set("half", 0.5);
  const OpCall call = Call();
  OperandCheck good("op", call, 0, 0);
  good.IntegerAttribute("kind", -1, 0, 2);
  good.IntegerAttribute("absent", 1, 0, 2);
  EXPECT_TRUE(good.ok());
  for (const auto& [name, fallback] : {std::pair("half", 0.0), std::pair("absent", -1.0)}) {
    OperandCheck bad("op", call, 0, 0);
    bad.IntegerAttribute(name, fallback, 0, 2);
    EXPECT_FALSE(bad.ok()) << name;
  }
}

}  // namespace
}  // namespace pagemill::ops
