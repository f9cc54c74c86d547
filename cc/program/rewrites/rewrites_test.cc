#include "cc/program/rewrites/rewrites.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pagemill::program {
namespace {

constexpr char kHead[] = R"(pagemill-program 3
file 0 /m
weight w f32 8 0 0
weight u f32 8 0 32
weight b f32 8 0 64
weight table f32 8,8 0 96
weight table2 f32 8,8 0 352
weight half bf16 8,8 0 608
weight bytes i8 8,8 0 736
weight scales f32 8,1 0 800
quantized scaled8 i8 8,8 scaled 1,8 bytes,scales,-,- quantized_activations=1
quantized scaled i8 8,8 scaled 1,8 bytes,scales,-,-
input token_ids i32 tokens
value x f32 tokens,8
value y f32 tokens,8
value out f32 logits_rows,8
op embedding token_ids,table -> x
op embedding token_ids,table -> y
)";

// The head, plus a value of T rows of this shape for each of these names.
std::string Head(const std::vector<std::string>& values, const std::string& shape = "8") {
  std::string head = kHead;
  for (const std::string& name : values) {
    head.insert(head.find("value out"), "value " + name + " f32 tokens," + shape + "\n");
  }
  return head;
}

std::string Rewritten(const std::string& ops,
                      const std::vector<std::string>& values = {"s", "n", "m"},
                      const std::string& shape = "8") {
  const std::string head = Head(values, shape);
  StatusOr<Program> program = Program::Parse(head + ops + "output logits out\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  program = RewriteProgram(*std::move(program), ops::CpuOps());
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  const std::string text = program->ToText();
  EXPECT_EQ(text.rfind(head, 0), 0u) << "declarations changed";
  const std::string rest = text.substr(head.size());
  return rest.substr(0, rest.rfind("output"));
}

TEST(MergeAdaptersTest, MergesThoseOfOneInput) {
  const std::string head =
      "pagemill-program 3\n"
      "adapter a 4,4\n"
      "adapter b 4,4\n"
      "adapter c 4,4\n"
      "input x act tokens,4\n"
      "input y act tokens,4\n"
      "input adapter_slots i32 tokens\n"
      "value p act tokens,4\n"
      "value q act tokens,4\n"
      "value r act tokens,4\n"
      "value out act tokens,4\n";
  StatusOr<Program> program = Program::Parse(head +
                                             "op apply_adapter x,adapter_slots,-,-,y,a -> p\n"
                                             "op apply_adapter x,adapter_slots,-,-,y,b -> q\n"
                                             "op apply_adapter x,adapter_slots,-,-,q,c -> r\n"
                                             "op add p,r -> out\n"
                                             "output sum out\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  program = RewriteProgram(*std::move(program), ops::CpuOps());
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->ToText(), head +
                                   "op apply_adapter x,adapter_slots,-,-,y,a,y,b -> p,q\n"
                                   "op apply_adapter x,adapter_slots,-,-,q,c -> r\n"
                                   "op add p,r -> out\n"
                                   "output sum out\n")
      << "the third reads a result of the second";
}

TEST(FuseOpsTest, FusesAndKeepsTheSum) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op activation x -> m kind=1\n"
                      "op rms_norm s,w -> n eps=1e-05 weight_offset=1\n"
                      "op both n,s,m -> out\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05 weight_offset=1\n"
            "op activation x -> m kind=1\n"
            "op both n,s,m -> out\n");
}

TEST(FuseOpsTest, FusesTheFirstOfTwoNorms) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op rms_norm s,w -> n eps=1e-05\n"
                      "op rms_norm s,u -> m eps=1e-06\n"
                      "op both n,m -> out\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05\n"
            "op rms_norm s,u -> m eps=1e-06\n"
            "op both n,m -> out\n");
}

TEST(FuseOpsTest, FusesAChain) {
  EXPECT_EQ(Rewritten("op add x,y -> s\n"
                      "op rms_norm s,w -> n eps=1e-05\n"
                      "op add s,n -> m\n"
                      "op rms_norm m,u -> out eps=1e-05\n"),
            "op add_rms_norm x,y,w -> n,s eps=1e-05\n"
            "op add s,n -> m\n"
            "op rms_norm m,u -> out eps=1e-05\n")
      << "the last norm has another shape (L rows)";
}

TEST(FuseOpsTest, FusesTheSumOfRanksWithTheNormBehindIt) {
  EXPECT_EQ(Rewritten("op all_reduce y -> m axis=0 ranks=2\n"
                      "op add x,m -> s\n"
                      "op rms_norm s,w -> n eps=1e-05\n"
                      "op both n,s -> out\n"),
            "op all_reduce_add_rms_norm y,x,w -> n,s,m axis=0 ranks=2 eps=1e-05\n"
            "op both n,s -> out\n");
}

TEST(FuseOpsTest, LeavesNormsOfGroupsAlone) {
  const std::string ops =
      "op add x,y -> s\nop rms_norm s,w -> n eps=1e-05\nop both n,m -> out\n";
  EXPECT_EQ(Rewritten("op activation x -> m kind=1\n" + ops, {"s", "n", "m"}, "2,4"),
            "op activation x -> m kind=1\n" + ops);
}

TEST(FuseOpsTest, LeavesBroadcastsAndOtherNormsAlone) {
  const std::string broadcast =
      "op add x,b -> s\nop rms_norm s,w -> n eps=1e-05\nop both n,y,m -> out\n";
  const std::string ops = "op activation x -> m kind=1\n" + broadcast;
  EXPECT_EQ(Rewritten(ops), ops);
  const std::string layer_norm =
      "op add x,y -> s\nop layer_norm s,w,b -> n eps=1e-05\nop activation n -> m kind=0\n"
      "op both m -> out\n";
  EXPECT_EQ(Rewritten(layer_norm), layer_norm);
}

TEST(MergeProductsTest, ProductsOfOneValueAreOneOp) {
  EXPECT_EQ(Rewritten("op linear x,table,b -> m\n"
                      "op activation m -> n kind=1\n"
                      "op linear x,table2 -> s\n"
                      "op linear y,table -> z\n"
                      "op both n,s,z -> out\n",
                      {"m", "n", "s", "z"}),
            "op linear x,table,b,table2,- -> m,s\n"
            "op activation m -> n kind=1\n"
            "op linear y,table -> z\n"
            "op both n,s,z -> out\n");
}

TEST(MergeProductsTest, ProductsWithWeightsOfOneFormatAreOneOp) {
  EXPECT_EQ(Rewritten("op linear x,scaled8 -> m\n"
                      "op linear x,scaled8,b -> s\n"
                      "op linear x,scaled -> z\n"
                      "op linear x,table -> n\n"
                      "op both m,s,z,n -> out\n",
                      {"m", "s", "z", "n"}),
            "op linear x,scaled8,-,scaled8,b -> m,s\n"
            "op linear x,scaled -> z\n"
            "op linear x,table -> n\n"
            "op both m,s,z,n -> out\n");
}

TEST(MergeProductsTest, AMissingFirstBiasKeepsItsPlace) {
  EXPECT_EQ(Rewritten("op linear x,table -> m\n"
                      "op linear x,table2,b -> s\n"
                      "op both m,s -> out\n",
                      {"m", "s"}),
            "op linear x,table,-,table2,b -> m,s\n"
            "op both m,s -> out\n");
}

TEST(MergeProductsTest, OtherTypesAndComputedOperandsStayApart) {
  const std::string types = "op linear x,table -> m\nop linear x,half -> s\nop both m,s -> out\n";
  EXPECT_EQ(Rewritten(types, {"m", "s"}), types);
  const std::string computed =
      "op linear x,table -> m\nop linear m,table -> n\nop linear x,table,n -> s\n"
      "op both m,s,n -> out\n";
  EXPECT_EQ(Rewritten(computed), computed);
}

TEST(MergeProductsTest, AtMostAsManyAsAnOpTakes) {
  std::string before, operands, results;
  std::vector<std::string> values;
  for (int i = 0; i < 10; ++i) {
    values.push_back("z" + std::to_string(i));
    before += "op linear x,table -> " + values.back() + "\n";
    if (i >= 8) continue;
    operands += ",table,-";
    results += (i > 0 ? "," : "") + values.back();
  }
  const std::string use = "op both z0,z9 -> out\n";
  EXPECT_EQ(Rewritten(before + use, values), "op linear x" + operands + " -> " + results +
                                                 "\nop linear x,table,-,table,- -> z8,z9\n" + use);
}

// Rewrites these ops over two caches and values with a head of 8. `values` are declared in addition
// to q, k, q2 and k2.
std::string RewrittenAttention(const std::string& ops, const std::vector<std::string>& values) {
  std::string head = R"(pagemill-program 3
file 0 /m
weight table f32 8,8 0 0
weight inv_freq f32 2 0 256
input token_ids i32 tokens
input positions i32 tokens
group all full
cache kv0 all kv kv 1,8
cache kv1 all kv kv 1,8
value q f32 tokens,1,8
value k f32 tokens,1,8
value q2 f32 tokens,1,8
value k2 f32 tokens,1,8
value out f32 logits_rows,8
op embedding token_ids,table -> q
op embedding token_ids,table -> k
)";
  for (const std::string& name : values) {
    head.insert(head.find("value out"), "value " + name + " f32 tokens,1,8\n");
  }
  StatusOr<Program> program = Program::Parse(head + ops + "output logits out\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  program = RewriteProgram(*std::move(program), ops::CpuOps());
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  const std::string text = program->ToText();
  const std::string rest = text.substr(text.find("-> k\n") + 5);
  return rest.substr(0, rest.rfind("output"));
}

TEST(FuseOpsTest, KeysAreStoredWhereTheyAreRotated) {
  EXPECT_EQ(RewrittenAttention("op embedding token_ids,table -> v\n"
                               "op rotary q,k,positions,inv_freq -> q2,k2 interleaved=1\n"
                               "op kv_write k2,v,kv0 ->\n"
                               "op paged_attention q2,kv0 -> y scale=1\n"
                               "op both y,k2 -> out\n",
                               {"v", "y"}),
            "op embedding token_ids,table -> v\n"
            "op rotary_kv_write q,k,positions,inv_freq,v,kv0 -> q2,k2 interleaved=1\n"
            "op paged_attention q2,kv0 -> y scale=1\n"
            "op both y,k2 -> out\n");
}

TEST(FuseOpsTest, LeavesAloneWhatCannotMove) {
  const std::string later_v =
      "op rotary q,k,positions,inv_freq -> q2,k2\n"
      "op embedding token_ids,table -> v\n"
      "op kv_write k2,v,kv0 ->\n"
      "op both q2 -> out\n";
  EXPECT_EQ(RewrittenAttention(later_v, {"v"}), later_v) << "v does not exist where k is rotated";
  const std::string read_before =
      "op rotary q,k,positions,inv_freq -> q2,k2\n"
      "op paged_attention q2,kv0 -> y scale=1\n"
      "op kv_write k2,k,kv0 ->\n"
      "op both y -> out\n";
  EXPECT_EQ(RewrittenAttention(read_before, {"y"}), read_before) << "the cache is read before";
  const std::string other_key =
      "op rotary q,k,positions,inv_freq -> q2,k2\n"
      "op kv_write k,k,kv0 ->\n"
      "op both q2,k2 -> out\n";
  EXPECT_EQ(RewrittenAttention(other_key, {}), other_key) << "keys without positions are stored";
}

TEST(FuseOpsTest, StoresInOneOfTwoCaches) {
  EXPECT_EQ(RewrittenAttention("op rotary q,k,positions,inv_freq -> q2,k2\n"
                               "op kv_write k2,k,kv1 ->\n"
                               "op kv_write k2,k,kv0 ->\n"
                               "op both q2 -> out\n",
                               {}),
            "op rotary_kv_write q,k,positions,inv_freq,k,kv1 -> q2,k2\n"
            "op kv_write k2,k,kv0 ->\n"
            "op both q2 -> out\n");
}

TEST(RewritesTest, HaveNamesAndAreIdempotent) {
  ASSERT_FALSE(Rewrites().empty());
  for (const Rewrite& rewrite : Rewrites()) EXPECT_FALSE(rewrite.name.empty());
  StatusOr<Program> once = Program::Parse(Head({"s", "n", "m", "z0", "z1"}) +
                                          "op add x,y -> s\nop rms_norm s,w -> n eps=1\n"
                                          "op linear n,table -> z0\nop linear n,table -> z1\n"
                                          "op activation n -> m\nop both m,z0,z1 -> out\n"
                                          "output logits out\n");
  ASSERT_TRUE(once.ok());
  once = RewriteProgram(*std::move(once), ops::CpuOps());
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(*RewriteProgram(*once, ops::CpuOps()), *once);
}

}  // namespace
}  // namespace pagemill::program
