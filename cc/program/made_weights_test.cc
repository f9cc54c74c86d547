#include <gtest/gtest.h>

#include <string>

#include "cc/program/program.h"
#include "cc/program/testing/changed_text.h"

namespace pagemill::program {
namespace {

using testing::BadText;
using testing::ExpectGarbageIsSafe;
using testing::ExpectRefused;
using testing::Replace;

// Matrices of 24 rows and 128 columns in two groups, as each layout stores them (the parts of
// `floats` are any); canonical.
constexpr char kText[] = R"(pagemill-program 3
file 0 model.safetensors
weight av i32 128,3 0 0
weight as f16 2,24 0 0
weight az i32 2,3 0 0
weight index i32 128 0 0
weight bytes i8 24,128 0 0
weight scales f32 24,1 0 0
stack stacked i8 2,24,128 bytes,bytes
stack stacked_scales f32 2,24,1 scales,scales
quantized awq u4 24,128 awq 1,64 av,as,az,-
quantized part u4 5,32 awq 1,64 av,as,az,- at=19,96
quantized heads u4 3,8,128 awq 1,64 av,as,-,index row_step=8
quantized scaled i8 24,128 scaled 1,128 bytes,scales,-,- quantized_activations=1
quantized experts i8 2,24,128 scaled 1,128 stacked,stacked_scales,-,-
quantized floats u4 24,128 nvfp4 1,16 av,as,-,-,scales
input token_ids i32 tokens
value out f32 logits_rows,1
op any token_ids,awq -> out
output logits out
)";

TEST(QuantizedTest, EveryFormatRoundTrips) {
  const StatusOr<Program> program = Program::Parse(kText);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->ToText(), kText);
  const Value& part = program->value(*program->Find("part"));
  EXPECT_EQ(part.kind, ValueKind::kWeight);
  EXPECT_EQ(part.Bytes({}), 5 * 16);
  ASSERT_TRUE(part.quantized);
  EXPECT_EQ(part.quantized->format, (QuantizedFormat{.layout = QuantizedLayout::kAwq,
                                                     .block_columns = 64,
                                                     .first_row = 19,
                                                     .first_column = 96}));
  EXPECT_EQ(part.quantized->scales, program->Find("as"));
  EXPECT_EQ(part.quantized->groups, kNoValue);
  EXPECT_EQ(program->value(*program->Find("heads")).quantized->format.row_step, 8);
  EXPECT_TRUE(program->value(*program->Find("scaled")).quantized->format.quantized_activations);
  EXPECT_EQ(part.quantized->factor, kNoValue);
  const Value& floats = program->value(*program->Find("floats"));
  EXPECT_EQ(floats.quantized->factor, program->Find("scales"));
  const Program other = *Program::Parse(Replace(kText, "19,96", "18,96"));
  EXPECT_FALSE(*program == other) << "formats are part of equality";
}

class QuantizedErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(QuantizedErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, QuantizedErrorTest,
    ::testing::Values(
        BadText{"Fields", "awq 1,64 av,as,az,-\n", "awq 1,64\n", "line 11: expected 'quantized <"},
        BadText{"Layout", "awq 1,64", "exl2 1,64", "unknown layout 'exl2'; known: scaled awq"},
        BadText{"Block", "awq 1,64", "awq 1,four", "block '1,four' must be two whole numbers"},
        BadText{"OneNumber", "awq 1,64", "awq 64", "block '64' must be two whole numbers"},
        BadText{"NoValues", "av,as,az,-", "-,as,az,-", "line 11: quantized 'awq' needs values and"},
        BadText{"NoScales", "av,as,az,-", "av,-,az,-", "needs values and scales"},
        BadText{"Missing", "av,as,az,-", "av,as,az", "expected the parts '<values>,<scales>"},
        BadText{"TooMany", "av,as,az,-", "av,as,az,-,-,-", "expected the parts '<values>,<scales>"},
        BadText{"Unknown", "av,as,az,-", "no,as,az,-", "operand 'no' is not defined"},
        BadText{"PartOfParts", "bytes,scales,-,-", "awq,scales,-,-", "not quantized"},
        BadText{"StackOfMatrix", "bytes,scales,-,-", "stacked,scales,-,-", "no stacks"},
        BadText{"Attribute", "at=19,96", "to=19,96", "expected 'quantized <name>"},
        BadText{"Place", "at=19,96", "at=19", "expected 'quantized <name>"},
        BadText{"Step", "row_step=8", "row_step=x", "expected 'quantized <name>"},
        BadText{"Symbol", "quantized awq u4 24,128", "quantized awq u4 tokens,128",
                "numbers only"}),
    testing::BadTextName);

TEST(QuantizedErrorTest, GarbageNeverCrashes) {
  const std::string text = kText;
  ExpectGarbageIsSafe(text, text.find("weight av"), text.find("input "), " \n,0-8=\xff");
}

// Two experts as a file has them, and two that are columns of wider matrices; canonical.
constexpr char kStackText[] = R"(pagemill-program 3
file 0 model.safetensors
weight w0 bf16 8,32 0 0
weight w1 bf16 8,32 0 512
weight c0 bf16 8,32 0 1024 128
weight c1 bf16 8,32 0 2048 128
weight other bf16 8,64 0 1024
weight half f16 8,32 0 0
stack whole bf16 2,8,32 w0,w1
stack columns bf16 2,8,32 c0,c1
input token_ids i32 tokens
value out f32 logits_rows,1
op any token_ids,whole,columns -> out
output logits out
)";

TEST(StackTest, RoundTrips) {
  const StatusOr<Program> program = Program::Parse(kStackText);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->ToText(), kStackText);
  const Value& whole = program->value(*program->Find("whole"));
  EXPECT_EQ(whole.kind, ValueKind::kWeight);
  EXPECT_TRUE(whole.IsMade());
  EXPECT_EQ(whole.Bytes({}), 2 * 8 * 32 * 2);
  EXPECT_EQ(whole.stack, (std::vector{*program->Find("w0"), *program->Find("w1")}));
  const Program other = *Program::Parse(Replace(kStackText, "32 w0,w1", "32 w1,w0"));
  EXPECT_FALSE(*program == other) << "parts are part of equality";
}

class StackErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(StackErrorTest, NamesLineAndCause) { ExpectRefused(kStackText, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, StackErrorTest,
    ::testing::Values(
        BadText{"Fields", "32 w0,w1", "32", "line 9: expected 'stack <name>"},
        BadText{"Count", "2,8,32 w0", "3,8,32 w0", "line 9: stack 'whole' of 3,8,32 has 2 parts"},
        BadText{"Shape", "32 w0,w1", "32 w0,other",
                "line 9: stack 'whole' needs parts of bf16 "
                "8,32, but 'other' is bf16 8,64"},
        BadText{"DType", "32 w0,w1", "32 w0,half", "but 'half' is f16 8,32"},
        BadText{"Missing", "32 w0,w1", "32 w0,-", "needs parts that are weights of a file"},
        BadText{"Nested", "32 c0,c1", "32 c0,whole", "needs parts that are weights of a file"},
        BadText{"Unknown", "32 w0,w1", "32 w0,w9", "line 9: operand 'w9' is not defined"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagemill::program
