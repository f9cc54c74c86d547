#include "cc/program/adapters/adapter_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "cc/program/adapters/adapter_weights.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {
namespace {

Program MakeProgram() {
  StatusOr<Program> program = Program::Parse(
      "pagemill-program 3\n"
      "adapter one 3,4\n"
      "adapter two 2,4\n"
      "adapter experts 3,2,4\n"
      "input x act tokens,4\n"
      "input y act tokens,3\n"
      "input adapter_slots i32 tokens\n"
      "value z act tokens,3\n"
      "op apply_adapter x,adapter_slots,-,-,y,one -> z\n"
      "output z z\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return std::move(*program);
}

class AdapterTablesTest : public testing::Test {
 protected:
  std::string MessageOf(const std::vector<AdapterWeights::Layer>& layers) const {
    return AdapterWeights::Make(program_, layers).status().message();
  }
  AdapterWeights::Layer Layer(const std::string& name, int64_t out, int64_t expert = 0) {
    return {.name = name,
            .expert = expert,
            .tensors = {.a = TensorView::Dense(numbers_.data(), DType::kF32, {2, 4}),
                        .b = TensorView::Dense(numbers_.data(), DType::kF32, {out, 2}),
                        .scale = 2,
                        .gain = {},
                        .offset = {}}};
  }

  const Program program_ = MakeProgram();
  std::array<float, 16> numbers_ = {1, 2, 3, 4, 5, 6, 7, 8};
};

TEST_F(AdapterTablesTest, TheTextIsWrittenAsItWasRead) {
  EXPECT_NE(program_.ToText().find("adapter one 3,4\nadapter two 2,4\nadapter experts 3,2,4\n"),
            std::string::npos);
  EXPECT_EQ(*Program::Parse(program_.ToText()), program_);
  EXPECT_FALSE(Program::Parse("pagemill-program 3\nadapter one 3\n").ok());
  EXPECT_FALSE(Program::Parse("pagemill-program 3\nadapter one tokens,3\n").ok());
}

TEST_F(AdapterTablesTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(MessageOf({Layer("three", 3)}), "the program has no adapter for 'three'");
  EXPECT_EQ(MessageOf({Layer("one", 3), Layer("one", 3)}), "'one' occurs twice");
  EXPECT_EQ(MessageOf({Layer("experts", 2, 1), Layer("experts", 2, 1)}), "'experts' occurs twice");
  EXPECT_EQ(MessageOf({Layer("experts", 2, 3)}), "'experts' has no expert 3");
  EXPECT_EQ(MessageOf({Layer("two", 3)}),
            "'two': lora_B must be f32, bf16 or f16 [2, 2], got f32 [3, 2]");
}

TEST_F(AdapterTablesTest, ASlotHasTheLayersOfItsAdapter) {
  AdapterTables tables(program_, 2);
  const ops::AdapterMatrices* one = tables.TableOf(*program_.Find("one"));
  const ops::AdapterMatrices* two = tables.TableOf(*program_.Find("two"));
  const std::vector<AdapterWeights::Layer> layers = {Layer("one", 3)};
  auto weights = *AdapterWeights::Make(program_, layers);
  EXPECT_EQ(weights->bytes(), 4 * (2 * 4 + 2 * 3));
  ASSERT_TRUE(tables.Set(1, weights).ok());
  EXPECT_EQ(one[1].rank, 2);
  EXPECT_EQ(one[1].scale, 2);
  EXPECT_TRUE(one[0].empty());
  EXPECT_TRUE(two[1].empty());
  EXPECT_EQ(weights.use_count(), 2) << "the slot holds it";
  ASSERT_TRUE(tables.Set(1, nullptr).ok());
  EXPECT_TRUE(one[1].empty());
  EXPECT_EQ(weights.use_count(), 1);
  EXPECT_FALSE(tables.Set(2, weights).ok());
  EXPECT_FALSE(tables.Set(-1, weights).ok());
}

TEST_F(AdapterTablesTest, ExpertsHaveEntriesOfTheirOwn) {
  AdapterTables tables(program_, 2);
  const std::vector<AdapterWeights::Layer> layers = {Layer("experts", 2, 1), Layer("two", 2)};
  ASSERT_TRUE(tables.Set(1, *AdapterWeights::Make(program_, layers)).ok());
  const ops::AdapterMatrices* experts = tables.TableOf(*program_.Find("experts"));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(experts[i].rank, i == 3 + 1 ? 2 : 0) << i;
  EXPECT_EQ(tables.TableOf(*program_.Find("two"))[1].rank, 2);
}

}  // namespace
}  // namespace pagemill::program
