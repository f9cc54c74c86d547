// Weights that are stacks of others, in text.
#include <gtest/gtest.h>

#include <string>

#include "cc/program/program.h"
#include "cc/program/testing/changed_text.h"

namespace pagemill::program {
namespace {

using testing::BadText;
using testing::ExpectRefused;
using testing::Replace;

// Two experts as a file has them, and two that are columns of wider matrices; canonical.
constexpr char kText[] = R"(pagemill-program 2
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
  const StatusOr<Program> program = Program::Parse(kText);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->ToText(), kText);
  const Value& whole = program->value(*program->Find("whole"));
  EXPECT_EQ(whole.kind, ValueKind::kWeight);
  EXPECT_TRUE(whole.IsMade());
  EXPECT_EQ(whole.Bytes({}), 2 * 8 * 32 * 2);
  EXPECT_EQ(whole.stack, (std::vector{*program->Find("w0"), *program->Find("w1")}));
  const Program other = *Program::Parse(Replace(kText, "32 w0,w1", "32 w1,w0"));
  EXPECT_FALSE(*program == other) << "parts are part of equality";
}

class StackErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(StackErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }

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
