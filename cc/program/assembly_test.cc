#include "cc/program/assembly.h"

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

// A matrix of 24 rows and 128 columns in two groups, as each layout stores it; canonical.
constexpr char kText[] = R"(pagemill-program 2
file 0 model.safetensors
weight av i32 128,3 0 0
weight as f16 2,24 0 0
weight az i32 2,3 0 0
weight gv i32 16,24 0 0
weight gs bf16 2,24 0 0
weight gz i32 2,3 0 0
weight index i32 128 0 0
weight pv i32 24,32 0 0
weight ps f32 24,2 0 0
weight pz i32 6,2 0 0
assembled awq q4_1 24,128 awq 4 64 av,as,az,-
assembled part q4_1 5,32 awq 4 64 av,as,az,- 19 96
assembled gptq q4_0 24,128 gptq 4 64 gv,gs,-,-
assembled mixed bf16 24,128 gptq_v2 4 64 gv,gs,gz,index
assembled bytes q8_0 24,128 pack_quantized 8 64 pv,ps,-,-
assembled far bf16 24,128 pack_quantized 8 64 pv,ps,pz,-
input token_ids i32 tokens
value out f32 logits_rows,1
op any token_ids,awq -> out
output logits out
)";

TEST(AssemblyTest, EveryLayoutRoundTrips) {
  const StatusOr<Program> program = Program::Parse(kText);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->ToText(), kText);
  const Value& part = program->value(*program->Find("part"));
  EXPECT_EQ(part.kind, ValueKind::kWeight);
  EXPECT_EQ(part.Bytes({}), 5 * 20);
  ASSERT_TRUE(part.assembly);
  EXPECT_EQ(part.assembly->layout, PackedLayout::kAwq);
  EXPECT_EQ(part.assembly->group, 64);
  EXPECT_EQ(part.assembly->scales, program->Find("as"));
  EXPECT_EQ(part.assembly->groups, kNoValue);
  EXPECT_EQ(part.assembly->first_row, 19);
  EXPECT_EQ(part.assembly->first_column, 96);
  const Program other = *Program::Parse(Replace(kText, "19 96", "18 96"));
  EXPECT_FALSE(*program == other) << "assemblies are part of equality";
}

TEST(AssemblyTest, TheIntegersSayTheSize) {
  const Program program = *Program::Parse(kText);
  for (const char* name : {"awq", "gptq", "mixed", "bytes"}) {
    const Assembly& assembly = *program.value(*program.Find(name)).assembly;
    const PackedShape shape = PackedShapeOf(assembly, program.value(assembly.values).shape);
    EXPECT_EQ(shape.rows, 24) << name;
    EXPECT_EQ(shape.columns, 128) << name;
    EXPECT_EQ(shape.groups, 2) << name;
  }
}

class AssemblyErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(AssemblyErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, AssemblyErrorTest,
    ::testing::Values(
        BadText{"Fields", "awq 4 64 av,as,az,-\n", "awq 4 64\n", "line 13: expected 'assembled <"},
        BadText{"Layout", "awq 4 64", "exl2 4 64", "unknown layout 'exl2'; known: awq, gptq"},
        BadText{"Words", "awq 4 64", "awq four 64", "bits 'four' and group '64' must be whole"},
        BadText{"Bits", "gptq 4 64", "gptq 3 64", "line 15: assembled 'gptq' has 3 bits; known: 4"},
        BadText{"NoBits", "gptq 4 64", "gptq 0 64", "has 0 bits"},
        BadText{"AwqBits", "awq 4 64", "awq 8 64", "has 8 bits; known: 4"},
        BadText{"Group", "awq 4 64", "awq 4 48", "has groups of 48 columns, not a multiple of 32"},
        BadText{"NoGroup", "awq 4 64", "awq 4 0", "has groups of 0 columns"},
        BadText{"HugeGroup", "awq 4 64", "awq 4 9223372036854775776",
                "columns, not a multiple of 32"},
        BadText{"OtherGroup", "awq 4 64", "awq 4 32", "has scales of f16 2,24 for 24 rows and 4"},
        BadText{"DType", "awq q4_1", "awq q5_0", "cannot be q5_0 24,128"},
        BadText{"NoZeros", "av,as,az,-", "av,as,-,-", "cannot be q4_1"},
        BadText{"Zeros", "gv,gs,-,-", "gv,gs,gz,-", "cannot be q4_0"},
        BadText{"Groups", "gv,gs,-,-", "gv,gs,-,index", "cannot be q4_0"},
        BadText{"ByteZeros", "pv,ps,-,-", "pv,ps,pz,-", "cannot be q8_0"},
        BadText{"ByteNibbles", "q8_0 24,128 pack_quantized 8", "q8_0 24,128 pack_quantized 4",
                "cannot be q8_0"},
        BadText{"NoValues", "av,as,az,-", "-,as,az,-", "needs values and scales"},
        BadText{"NoScales", "av,as,az,-", "av,-,az,-", "needs values and scales"},
        BadText{"Missing", "av,as,az,-", "av,as,az", "expected the parts '<values>,<scales>"},
        BadText{"Unknown", "av,as,az,-", "no,as,az,-", "operand 'no' is not defined"},
        BadText{"PartOfParts", "gv,gs,-,-", "awq,gs,-,-", "weights of a file"},
        BadText{"StridedPart", "av i32 128,3 0 0", "av i32 128,3 0 0 16", "weights of a file"},
        BadText{"ValuesType", "av i32", "av f32", "needs values of i32 and two dimensions"},
        BadText{"ValuesRank", "av i32 128,3", "av i32 384", "needs values of i32 and two"},
        BadText{"ScalesType", "as f16", "as i32", "has scales of i32 2,24"},
        BadText{"ScalesTurned", "ps f32 24,2", "ps f32 2,24", "has scales of f32 2,24 for 24 row"},
        BadText{"ZerosShape", "az i32 2,3", "az i32 2,4", "has zeros of i32 2,4 for 24 rows"},
        BadText{"ZerosType", "az i32 2,3", "az f32 2,3", "has zeros of f32 2,3"},
        BadText{"IndexShape", "index i32 128", "index i32 64", "has groups of i32 64 for 128"},
        BadText{"Rows", " 19 96", " 20 96", "takes 5,32 at row 20 and column 96 of a matrix of 24"},
        BadText{"Columns", " 19 96", " 19 128", "takes 5,32 at row 19 and column 128"},
        BadText{"CutBlock", " 19 96", " 19 80", "columns come in multiples of 32"},
        BadText{"Negative", " 19 96", " -1 96", "takes 5,32 at row -1"},
        BadText{"Huge", " 19 96", " 9223372036854775807 96", "takes 5,32 at row 9223372036854775"},
        BadText{"CutRow", "bf16 24,128", "bf16 24,16", "takes 24,16 at row 0"},
        BadText{"Symbol", "assembled awq q4_1 24,128", "assembled awq q4_1 tokens,128",
                "numbers only"}),
    testing::BadTextName);

TEST(AssemblyErrorTest, GarbageNeverCrashes) {
  const std::string text = kText;
  ExpectGarbageIsSafe(text, text.find("weight av"), text.find("input "), " \n,0-8\xff");
}

// Two experts as a file has them, and two that are columns of wider matrices; canonical.
constexpr char kStackText[] = R"(pagemill-program 2
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
                "line 9: stack 'whole' needs matrices of bf16 "
                "8,32, but 'other' is bf16 8,64"},
        BadText{"DType", "32 w0,w1", "32 w0,half", "but 'half' is f16 8,32"},
        BadText{"Missing", "32 w0,w1", "32 w0,-", "needs parts that are weights, and no stacks"},
        BadText{"Nested", "32 c0,c1", "32 c0,whole", "needs parts that are weights, and no stacks"},
        BadText{"Unknown", "32 w0,w1", "32 w0,w9", "line 9: operand 'w9' is not defined"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pagemill::program
