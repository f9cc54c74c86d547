#include "cc/program/weights/other_weights.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/program/testing/changed_text.h"

namespace pagemill::program {
namespace {

using testing::BadText;
using testing::BadTextName;
using testing::Replace;

constexpr char kText[] = R"(pagemill-program 3
file 0 /models/a
file 1 @
group all full
input token_ids i32 tokens
weight embed bf16 83,64 0 4096
cache kv0 all kv kv 2,16
value v0 act tokens,64
weight norm f32 2 1 0
weight wide bf16 32,64 0 65536 256
value v1 f32 logits_rows,32
op embedding token_ids,embed -> v0 scale=1
op linear v0,wide,- -> v1
output logits v1
constants 8
0000803f00000040
)";

Program MustParse(const std::string& text) {
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

TEST(OtherWeightsTest, FilesPlacesAndConstantsMayDiffer) {
  const Program loaded = MustParse(kText);
  for (const auto& [from, to] : {std::pair{"/models/a", "/models/b"},
                                 {"0 4096", "0 8192"},
                                 {"0000803f", "00000000"},
                                 {"file 1 @\n", "file 1 @\nfile 2 /models/c\n"},
                                 {"norm f32 2 1 0", "norm f32 2 0 16"}}) {
    const Status status = CheckOtherWeights(loaded, MustParse(Replace(kText, from, to)));
    EXPECT_TRUE(status.ok()) << from << ": " << status.ToString();
  }
}

class OtherProgramTest : public ::testing::TestWithParam<BadText> {};

TEST_P(OtherProgramTest, IsRefusedByName) {
  const BadText& bad = GetParam();
  const Status status =
      CheckOtherWeights(MustParse(kText), MustParse(Replace(kText, bad.from, bad.to)));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(bad.message), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(
    Texts, OtherProgramTest,
    ::testing::Values(
        BadText{"Type", "embed bf16 83,64", "embed f16 83,64",
                "'embed' is f16[83,64], but bf16[83,64] is loaded"},
        BadText{"Shape", "wide bf16 32,64", "wide bf16 48,64", "'wide' is bf16[48,64]"},
        BadText{"Stride", "65536 256", "65536 512", "'wide' is not the loaded one"},
        BadText{"MissingWeight", "weight norm f32 2 1 0\n", "", "'norm' is missing"},
        BadText{"OneMoreWeight", "weight norm f32 2 1 0\n",
                "weight more f32 2 1 0\nweight norm f32 2 1 0\n", "'more' is not of the loaded"},
        BadText{"OneMoreAtTheEnd", "value v1 f32 logits_rows,32\n",
                "value v1 f32 logits_rows,32\nweight last f32 2 1 0\n",
                "'last' is not of the loaded"},
        BadText{"Cache", "kv kv 2,16", "kv kv 2,32", "'kv0' is not the loaded one"},
        BadText{"Attribute", "scale=1", "scale=2", "op 0 is embedding"},
        BadText{"Output", "output logits v1", "output logits v1\noutput hidden.0 v0",
                "another one"}),
    BadTextName);

}  // namespace
}  // namespace pagemill::program
