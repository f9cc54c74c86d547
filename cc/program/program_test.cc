#include "cc/program/program.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/program/testing/changed_text.h"

namespace pagemill::program {
namespace {

using testing::BadText;
using testing::ExpectGarbageIsSafe;
using testing::ExpectRefused;
using testing::Replace;

// Every kind of line, once; canonical.
constexpr char kText[] = R"(pagemill-program 3
file 0 /models/with a space.gguf
file 1 @
group near sliding_window window=9
group all full
input token_ids i32 tokens
weight w0 q8_0 83,64 0 4096
cache kv0 near kv kv 2,16
cache kv1 all latent bf16 576
value v0 act tokens,64
weight w1 f32 2 1 0
input logits_rows i32 logits_rows
value v1 f32 tokens,4,16
value v2 f32 logits_rows,64
op embedding token_ids,w0 -> v0 scale=1e-05 other=-3
op linear v0,w0,- -> v1
op kv_write v1,v1,kv0 ->
op kv_write v1,v1,kv0 -> flag=1
op select_rows v1,logits_rows -> v2
output logits v2
constants 8
0000803f00000040
)";

Program MustParse(const std::string& text) {
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

TEST(ProgramTest, CanonicalTextRoundTrips) {
  EXPECT_EQ(MustParse(kText).ToText(), kText);
  EXPECT_EQ(MustParse(MustParse(kText).ToText()), MustParse(kText));
}

TEST(ProgramTest, ParsesEveryField) {
  const Program program = MustParse(kText);
  EXPECT_EQ(program.files()[0], "/models/with a space.gguf");
  const Value& weight = program.value(*program.Find("w0"));
  EXPECT_EQ(weight.kind, ValueKind::kWeight);
  EXPECT_EQ(weight.dtype, DType::kQ8_0);
  EXPECT_EQ(weight.weight, (WeightSource{0, 4096}));
  EXPECT_EQ(weight.Bytes({}), 83 * 2 * 34);
  EXPECT_EQ(weight.line, 7);
  EXPECT_EQ(
      program.value(*program.Find("kv0")).cache,
      (CacheSpec{.group = 0, .layout = CacheLayout::kKv, .dtype = std::nullopt, .dims = {2, 16}}));
  EXPECT_EQ(program.value(*program.Find("kv1")).cache,
            (CacheSpec{
                .group = 1, .layout = CacheLayout::kLatent, .dtype = DType::kBF16, .dims = {576}}));
  EXPECT_EQ(program.groups()[0], (KvGroup{"near", "sliding_window", 9}));
  EXPECT_EQ(program.groups()[1], (KvGroup{"all", "full", 0}));
  const Value& heads = program.value(*program.Find("v1"));
  EXPECT_EQ(heads.shape.dim, Dim::kTokens);
  EXPECT_EQ(heads.shape.ToString(), "tokens,4,16");
  EXPECT_EQ(heads.Bytes({.tokens = 3}), 3 * 64 * 4);
  EXPECT_EQ(program.ops()[0].attributes.Get("scale", 0), 1e-05);
  EXPECT_EQ(program.ops()[1].inputs[2], kNoValue);
  EXPECT_TRUE(program.ops()[3].outputs.empty());
  EXPECT_EQ(program.ops()[3].attributes.GetInt("flag", 0), 1);
  EXPECT_EQ(program.FindOutput("logits"), program.Find("v2"));
  EXPECT_EQ(program.FindOutput("pooled"), std::nullopt);
  EXPECT_EQ(program.constants()[3], std::byte{0x3f});
}

TEST(ProgramTest, AWeightMayBeColumnsOfAWiderMatrix) {
  const std::string text = Replace(kText, "0 4096\n", "0 4096 340\n");
  const Program program = MustParse(text);
  const Value& weight = program.value(*program.Find("w0"));
  EXPECT_EQ(weight.RowStrideBytes(), 340);
  EXPECT_EQ(weight.Bytes({}), 83 * 68);
  EXPECT_EQ(weight.SpanBytes(), 82 * 340 + 68);
  EXPECT_EQ(program.ToText(), text);
  EXPECT_EQ(MustParse(kText).value(*program.Find("w0")).SpanBytes(), 83 * 68);
}

TEST(ProgramTest, AWeightMayBeTransposed) {
  const std::string text =
      Replace(kText, "weight w0 q8_0 83,64 0 4096\n", "weight w0 bf16 83,64 0 4096 2 340\n");
  const Program program = MustParse(text);
  const Value& weight = program.value(*program.Find("w0"));
  EXPECT_TRUE(weight.NeedsRows());
  EXPECT_FALSE(weight.IsMade());
  EXPECT_EQ(weight.RowStrideBytes(), 128) << "of the copy";
  EXPECT_EQ(weight.Bytes({}), 83 * 128);
  EXPECT_EQ(weight.SpanBytes(), 82 * 2 + 63 * 340 + 2);
  EXPECT_EQ(program.ToText(), text);
}

TEST(ProgramTest, ActStandsForTheTypeThatWasBound) {
  Program program = MustParse(kText);
  const ValueId act = *program.Find("v0"), f32 = *program.Find("v2");
  EXPECT_EQ(program.value(act).dtype, DType::kF32);
  ASSERT_TRUE(program.SetActivationType(DType::kBF16).ok());
  EXPECT_EQ(program.value(act).dtype, DType::kBF16);
  EXPECT_EQ(program.value(f32).dtype, DType::kF32);
  EXPECT_EQ(program.activation_type(), DType::kBF16);
  EXPECT_EQ(program.ToText(), kText) << "the text says act, whatever is bound";
  EXPECT_EQ(program.SetActivationType(DType::kI32).message(),
            "activations must be f32, bf16 or f16, not i32");
}

TEST(ProgramTest, MediaRowsAreADimensionWithAnArrayAndAnInput) {
  const std::string text =
      "pagemill-program 3\n"
      "input features act media_rows,588\n"
      "input media_rows i32 media_rows\n"
      "value v0 act media_rows,588\n"
      "op activation features -> v0 kind=0\n"
      "output embeddings v0\n";
  const Program program = MustParse(text);
  EXPECT_EQ(program.ToText(), text);
  EXPECT_EQ(program.TensorInputs(), std::vector<ValueId>{*program.Find("features")});
  const Value& features = program.value(*program.Find("features"));
  EXPECT_EQ(features.shape.dim, Dim::kMediaRows);
  EXPECT_EQ(features.Bytes({.tokens = 99, .media_rows = 3}), 3 * 588 * 4);
  EXPECT_FALSE(Program::Parse(Replace(text, "i32 media_rows", "i32 tokens")).ok());
}

TEST(ProgramTest, GridPositionsHaveThreeColumns) {
  const std::string text =
      "pagemill-program 3\n"
      "input grid_positions i32 tokens,3\n"
      "input x act tokens,2\n"
      "value v0 act tokens,2\n"
      "op scale x -> v0 by=2\n"
      "output y v0\n";
  const Program program = MustParse(text);
  EXPECT_EQ(program.ToText(), text);
  EXPECT_EQ(program.TensorInputs(), std::vector<ValueId>{*program.Find("x")});
  for (const char* wrong : {"i32 tokens", "i32 tokens,2", "i32 media_rows,3", "f32 tokens,3"}) {
    EXPECT_NE(Program::Parse(Replace(text, "i32 tokens,3", wrong))
                  .status()
                  .message()
                  .find("must be i32 tokens,3"),
              std::string::npos)
        << wrong;
  }
}

TEST(ProgramTest, OutputsHaveNames) {
  const std::string text =
      Replace(kText, "output logits v2\n", "output logits v2\noutput hidden.0 v0\n");
  const Program program = MustParse(text);
  EXPECT_EQ(program.ToText(), text);
  EXPECT_EQ(program.FindOutput("hidden.0"), program.Find("v0"));
  EXPECT_TRUE(program.IsOutput(*program.Find("v0")));
  EXPECT_FALSE(program.IsOutput(*program.Find("v1")));
}

TEST(ProgramTest, CommentsAndOrderOfDeclarationsDoNotMatter) {
  std::string text = Replace(kText, "op embedding", "# a comment\n\nop embedding");
  EXPECT_EQ(MustParse(text), MustParse(kText));
}

TEST(ProgramTest, DoublesKeepTheirValue) {
  for (const char* number : {"0.1", "1e-300", "-2.5", "123456789.125", "3", "1e+22"}) {
    const std::string text = Replace(kText, "scale=1e-05", std::string("scale=") + number);
    const Program program = MustParse(MustParse(text).ToText());
    EXPECT_EQ(program.ops()[0].attributes.Get("scale", 0), std::stod(number));
  }
}

TEST(ProgramTest, LastLineNeedsNoNewline) {
  std::string text = kText;
  text.pop_back();
  EXPECT_EQ(MustParse(text), MustParse(kText));
}

TEST(ProgramTest, HasAtMost64Groups) {
  std::string text = "pagemill-program 3\n";
  for (int g = 0; g < 65; ++g) text += "group g" + std::to_string(g) + " full\n";
  EXPECT_EQ(Program::Parse(text).status().message(),
            "program line 66: a program has at most 64 groups");
}

class ProgramErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(ProgramErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, ProgramErrorTest,
    ::testing::Values(
        BadText{"Header", "pagemill-program", "program", "line 1: expected the header"},
        BadText{"Version", "program 3", "program 1",
                "line 1: this is program format 1, but this v"},
        BadText{"Kind", "cache kv0", "cachet kv0", "line 8: unknown kind of line 'cachet'"},
        BadText{"DoubleSpace", "cache kv0", "cache  kv0", "line 8: expected 'cache <name>"},
        BadText{"FileOrder", "file 1 @", "file 2 @", "line 3: expected file id 1, got 2"},
        BadText{"TwoConstants", "/models/with a space.gguf", "@", "line 3: a second file is '@'"},
        BadText{"DType", "w0 q8_0", "w0 q9_0", "line 7: unknown dtype 'q9_0'"},
        BadText{"BlockRow", "83,64", "83,65", "line 7: shape '83,65' of block format q8_0"},
        BadText{"BlockVector", "q8_0 83,64", "q8_0 64", "line 7: shape '64' of block format"},
        BadText{"ZeroDim", "tokens,4,16", "tokens,0,16", "line 13: dimension '0'"},
        BadText{"LateDim", "tokens,4,16", "4,tokens,16", "line 13: dimension 'tokens'"},
        BadText{"Rank", "tokens,4,16", "tokens,4,16,1,1",
                "line 13: shape 'tokens,4,16,1,1' has more than 4"},
        BadText{"Overflow", "tokens,4,16", "tokens,4000000000000,9000000000", "line 13: dimension"},
        BadText{"SymbolicWeight", "83,64", "tokens,64", "line 7: a weight's shape holds numbers"},
        BadText{"NegativeOffset", "0 4096", "0 -1", "line 7: file '0' and offset '-1'"},
        BadText{"DenseStride", "0 4096", "0 4096 68", "line 7: row stride '68' must be a multiple"},
        BadText{"CutStride", "0 4096", "0 4096 100", "line 7: row stride '100' must be a multiple"},
        BadText{"BlockStrides", "0 4096", "0 4096 34 340", "line 7: strides '34' and '340'"},
        BadText{"HugeStride", "0 4096", "0 4096 34000000000000000", "line 7: row stride"},
        BadText{"UnknownFile", "0 4096", "2 4096", "line 7: weight 'w0' names file 2"},
        BadText{"GroupWindow", "window=9", "window=0", "line 4: expected 'group <name>"},
        BadText{"GroupWord", "window=9", "width=9", "line 4: expected 'group <name>"},
        BadText{"GroupTwice", "group all", "group near", "line 5: a second group is 'near'"},
        BadText{"GroupWithoutCache", "kv1 all", "kv1 near", "program: group 'all' has no cache"},
        BadText{"CacheGroup", "kv0 near", "kv0 far", "line 8: group 'far' is not defined"},
        BadText{"CacheLayout", "near kv kv", "near vk kv", "line 8: layout 'vk' is not kv, lat"},
        BadText{"CacheType", "latent bf16", "latent q8_0", "line 9: a cache's dtype is kv or"},
        BadText{"CacheDims", "kv 2,16", "kv 0,16", "line 8: the dimensions of a cache are"},
        BadText{"CacheRow", "latent bf16 576", "latent bf16 576,6", "line 9: the tokens of a row"},
        BadText{"CacheRest", "latent bf16 576", "latent bf16 576,1,577",
                "line 9: dimensions are <"},
        BadText{"CacheRank", "kv 2,16", "kv 2,16,3", "line 8: dimensions are <kv_heads>,"},
        BadText{"Duplicate", "value v0", "value w0", "line 10: 'w0' is defined already, in line 7"},
        BadText{"InputName", "token_ids i32 tokens\n", "token_ibs i32 tokens\n",
                "line 6: unknown input"},
        BadText{"InputType", "token_ids i32", "token_ids f32", "line 6: input 'token_ids' must be"},
        BadText{"InputSymbol", "rows i32 logits_rows", "rows i32 tokens",
                "line 12: input 'logits_rows' must be"},
        BadText{"ValueType", "v0 act", "v0 q8_0", "line 10: a value's elements are single"},
        BadText{"Undefined", "linear v0,w0", "linear v9,w0",
                "line 16: operand 'v9' is not defined"},
        BadText{"NoArrow", "w0,- -> v1", "w0,- => v1", "line 16: expected 'op <name>"},
        BadText{"MissingOutput", "w0,- -> v1", "w0,- -> v1,-", "line 16: an output must have"},
        BadText{"Attribute", "scale=1e-05", "scale=abc", "line 15: attribute 'scale=abc'"},
        BadText{"TwiceAttribute", "other=-3", "scale=1", "line 15: attribute 'scale' is given twi"},
        BadText{"ReadBeforeWrite", "embedding token_ids,w0", "embedding v1,w0",
                "line 15: op 'embedding' reads 'v1' before any op writes it"},
        BadText{"SecondWrite", "w0,- -> v1", "w0,- -> v0",
                "line 16: op 'linear' writes 'v0' a sec"},
        BadText{"WriteWeight", "w0,- -> v1", "w0,- -> w0",
                "line 16: op 'linear' writes 'w0', which"},
        BadText{"NeverWritten", "v1,logits_rows -> v2", "v1,logits_rows ->",
                "line 14: no op write"},
        BadText{"OutputName", "output logits", "output pooled",
                "output 'pooled', value 'v2', must be f32 requests,<columns>"},
        BadText{"OutputRows", "output logits v2", "output logits v0",
                "output 'logits', value 'v0', must be f32 logits_rows,<columns>, got act tokens,6"},
        BadText{"OutputInAct", "v2 f32 logits_rows,64", "v2 act logits_rows,64",
                "output 'logits', value 'v2', must be f32 logits_rows,<columns>, got act lo"},
        BadText{"OutputWeight", "output logits v2", "output extra w0",
                "output 'extra', value 'w0', must be a value with rows of the step"},
        BadText{"OutputUndefined", "logits v2", "logits v3", "line 20: output 'v3' is not defined"},
        BadText{"SecondOutput", "output logits v2", "output logits v2\noutput logits v2",
                "repeats the name or the value of another output"},
        BadText{"NoOutput", "output logits v2\n", "", "program: it has no output"},
        BadText{"ConstantsLength", "constants 8", "constants 9", "line 22: expected 18 hex digits"},
        BadText{"ConstantsDigit", "0000803f", "000080gf", "line 22: constants hold a character"},
        BadText{"AfterConstants", "00000040\n", "00000040\nfile 2 x\n", "line 23: nothing may"}),
    testing::BadTextName);

TEST(ProgramErrorTest, GarbageNeverCrashes) {
  const std::string text = kText;
  ExpectGarbageIsSafe(text, 0, text.size(), " \n,0\xff=");
  for (size_t i = 0; i < text.size(); ++i) (void)Program::Parse(text.substr(0, i)).ok();
}

}  // namespace
}  // namespace pagemill::program
