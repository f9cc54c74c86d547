#include "cc/program/rewrites/rewrites.h"

#include <gtest/gtest.h>

#include <string>

namespace pagemill::program {
namespace {

constexpr char kHead[] = R"(pagemill-program 1
file 0 /m
weight w f32 8 0 0
weight u f32 8 0 32
weight b f32 8 0 64
weight table f32 9,8 0 96
input token_ids i32 T
value x f32 T,8
value y f32 T,8
value s f32 T,8
value n f32 T,8
value m f32 T,8
value out f32 L,8
op embedding token_ids,table -> x
op embedding token_ids,table -> y
)";

std::string Rewritten(const std::string& ops) {
  StatusOr<Program> program = Program::Parse(kHead + ops + "output logits out\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  program = RewriteProgram(*std::move(program));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  const std::string text = program->ToText();
  EXPECT_EQ(text.rfind(kHead, 0), 0u) << "declarations changed";
  const std::string rest = text.substr(sizeof(kHead) - 1);
  return rest.substr(0, rest.rfind("output"));
}

TEST(FuseAddRmsNormTest, FusesAndKeepsTheSum) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op activation x -> m kind=1\n"
                      "op rms_norm s,w -> n eps=1e-05 weight_offset=1\n"
                      "op both n,s,m -> out\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05 weight_offset=1\n"
            "op activation x -> m kind=1\n"
            "op both n,s,m -> out\n");
}

TEST(FuseAddRmsNormTest, FusesTheFirstOfTwoNorms) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op rms_norm s,w -> n eps=1e-05\n"
                      "op rms_norm s,u -> m eps=1e-06\n"
                      "op both n,m -> out\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05\n"
            "op rms_norm s,u -> m eps=1e-06\n"
            "op both n,m -> out\n");
}

TEST(FuseAddRmsNormTest, FusesAChain) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op rms_norm s,w -> n eps=1e-05\n"
                      "op add s,n -> m\n"
                      "op rms_norm m,u -> out eps=1e-05\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05\n"
            "op add s,n -> m\n"
            "op rms_norm m,u -> out eps=1e-05\n")
      << "the last norm has another shape (L rows)";
}

TEST(FuseAddRmsNormTest, LeavesBroadcastsAndOtherNormsAlone) {
  const std::string broadcast =
      "op add x,b -> s\nop rms_norm s,w -> n eps=1e-05\nop both n,y,m -> out\n";
  const std::string ops = "op activation x -> m kind=1\n" + broadcast;
  EXPECT_EQ(Rewritten(ops), ops);
  const std::string layer_norm =
      "op add x,y -> s\nop layer_norm s,w,b -> n eps=1e-05\nop activation n -> m kind=0\n"
      "op both m -> out\n";
  EXPECT_EQ(Rewritten(layer_norm), layer_norm);
}

TEST(RewritesTest, HaveNamesAndAreIdempotent) {
  ASSERT_FALSE(Rewrites().empty());
  for (const Rewrite& rewrite : Rewrites()) EXPECT_FALSE(rewrite.name.empty());
  StatusOr<Program> once = Program::Parse(std::string(kHead) +
                                          "op add x,y -> s\nop rms_norm s,w -> n eps=1\n"
                                          "op activation n -> m\nop both m -> out\n"
                                          "output logits out\n");
  ASSERT_TRUE(once.ok());
  once = RewriteProgram(*std::move(once));
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(*RewriteProgram(*once), *once);
}

}  // namespace
}  // namespace pagemill::program
