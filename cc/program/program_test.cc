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
constexpr char kText[] = R"(pagemill-program 1
file 0 /models/with a space.gguf
file 1 @
input token_ids i32 T
weight w0 q8_0 83,64 0 4096
cache kv0 2 16 9
value v0 f32 T,64
weight w1 f32 2 1 0
input logits_rows i32 L
value v1 f32 T,4,16
value v2 f32 L,64
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
  EXPECT_EQ(weight.line, 5);
  EXPECT_EQ(program.value(*program.Find("kv0")).cache, (CacheSpec{2, 16, 9}));
  const Value& heads = program.value(*program.Find("v1"));
  EXPECT_EQ(heads.shape.symbol, Symbol::kTokens);
  EXPECT_EQ(heads.shape.ToString(), "T,4,16");
  EXPECT_EQ(heads.Bytes({.tokens = 3}), 3 * 64 * 4);
  EXPECT_EQ(program.ops()[0].attributes.Get("scale", 0), 1e-05);
  EXPECT_EQ(program.ops()[1].inputs[2], kNoValue);
  EXPECT_TRUE(program.ops()[3].outputs.empty());
  EXPECT_EQ(program.ops()[3].attributes.GetInt("flag", 0), 1);
  EXPECT_EQ(program.logits(), program.Find("v2"));
  EXPECT_EQ(program.pooled(), std::nullopt);
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

class ProgramErrorTest : public ::testing::TestWithParam<BadText> {};

TEST_P(ProgramErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, ProgramErrorTest,
    ::testing::Values(
        BadText{"Header", "program 1", "program 2", "line 1: expected the header"},
        BadText{"Kind", "cache kv0", "cachet kv0", "line 6: unknown kind of line 'cachet'"},
        BadText{"DoubleSpace", "cache kv0", "cache  kv0", "line 6: expected 'cache <name>"},
        BadText{"FileOrder", "file 1 @", "file 2 @", "line 3: expected file id 1, got 2"},
        BadText{"TwoConstants", "/models/with a space.gguf", "@", "line 3: a second file is '@'"},
        BadText{"DType", "w0 q8_0", "w0 q9_0", "line 5: unknown dtype 'q9_0'"},
        BadText{"BlockRow", "83,64", "83,65", "line 5: shape '83,65' of block format q8_0"},
        BadText{"BlockVector", "q8_0 83,64", "q8_0 64", "line 5: shape '64' of block format"},
        BadText{"ZeroDim", "T,4,16", "T,0,16", "line 10: dimension '0'"},
        BadText{"LateSymbol", "T,4,16", "4,T,16", "line 10: dimension 'T'"},
        BadText{"Rank", "T,4,16", "T,4,16,1,1", "line 10: shape 'T,4,16,1,1' has more than 4"},
        BadText{"Overflow", "T,4,16", "T,4000000000000,9000000000", "line 10: dimension"},
        BadText{"SymbolicWeight", "83,64", "T,64", "line 5: a weight's shape has no symbol"},
        BadText{"NegativeOffset", "0 4096", "0 -1", "line 5: file '0' and offset '-1'"},
        BadText{"DenseStride", "0 4096", "0 4096 68", "line 5: row stride '68' must be a multiple"},
        BadText{"CutStride", "0 4096", "0 4096 100", "line 5: row stride '100' must be a multiple"},
        BadText{"HugeStride", "0 4096", "0 4096 34000000000000000", "line 5: row stride"},
        BadText{"UnknownFile", "0 4096", "2 4096", "line 5: weight 'w0' names file 2"},
        BadText{"CacheHeads", "kv0 2 16", "kv0 0 16", "line 6: a cache needs kv_heads"},
        BadText{"Duplicate", "value v0", "value w0", "line 7: 'w0' is defined already, in line 5"},
        BadText{"InputName", "token_ids i32 T\n", "token_ibs i32 T\n", "line 4: unknown input"},
        BadText{"InputType", "token_ids i32", "token_ids f32", "line 4: input 'token_ids' must be"},
        BadText{"InputSymbol", "rows i32 L", "rows i32 T", "line 9: input 'logits_rows' must be"},
        BadText{"ValueType", "v0 f32", "v0 bf16", "line 7: activations are f32 or i32"},
        BadText{"Undefined", "linear v0,w0", "linear v9,w0",
                "line 13: operand 'v9' is not defined"},
        BadText{"NoArrow", "w0,- -> v1", "w0,- => v1", "line 13: expected 'op <name>"},
        BadText{"MissingOutput", "w0,- -> v1", "w0,- -> v1,-", "line 13: an output must have"},
        BadText{"Attribute", "scale=1e-05", "scale=abc", "line 12: attribute 'scale=abc'"},
        BadText{"TwiceAttribute", "other=-3", "scale=1", "line 12: attribute 'scale' is given twi"},
        BadText{"ReadBeforeWrite", "embedding token_ids,w0", "embedding v1,w0",
                "line 12: op 'embedding' reads 'v1' before any op writes it"},
        BadText{"SecondWrite", "w0,- -> v1", "w0,- -> v0",
                "line 13: op 'linear' writes 'v0' a sec"},
        BadText{"WriteWeight", "w0,- -> v1", "w0,- -> w0",
                "line 13: op 'linear' writes 'w0', which"},
        BadText{"NeverWritten", "v1,logits_rows -> v2", "v1,logits_rows ->",
                "line 11: no op write"},
        BadText{"OutputName", "output logits", "output pooled", "line 17: output 'pooled' must"},
        BadText{"OutputUndefined", "logits v2", "logits v3", "line 17: output 'v3' is not defined"},
        BadText{"SecondOutput", "output logits v2", "output logits v2\noutput logits v2",
                "output 'v2' is the second"},
        BadText{"NoOutput", "output logits v2\n", "", "program: it has no output"},
        BadText{"ConstantsLength", "constants 8", "constants 9", "line 19: expected 18 hex digits"},
        BadText{"ConstantsDigit", "0000803f", "000080gf", "line 19: constants hold a character"},
        BadText{"AfterConstants", "00000040\n", "00000040\nfile 2 x\n", "line 20: nothing may"}),
    testing::BadTextName);

TEST(ProgramErrorTest, GarbageNeverCrashes) {
  const std::string text = kText;
  ExpectGarbageIsSafe(text, 0, text.size(), " \n,0\xff=");
  for (size_t i = 0; i < text.size(); ++i) (void)Program::Parse(text.substr(0, i)).ok();
}

}  // namespace
}  // namespace pagemill::program
