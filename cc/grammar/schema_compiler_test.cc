#include "cc/grammar/schema_compiler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_mask.h"
#include "cc/step/token_matcher.h"

namespace pagemill::grammar {
namespace {

using step::TokenMatcher;

constexpr int32_t kEos = 256;
constexpr int32_t kOtherEos = 257;
constexpr int32_t kName = 258;
constexpr int32_t kPadding = 259;
constexpr int32_t kVocabSize = 300;

// Every byte is a token, and "name" is.
std::vector<int32_t> Tokenized(const std::string& text) {
  std::vector<int32_t> token_ids;
  for (size_t at = 0; at < text.size();) {
    const bool is_name = text.compare(at, 4, "name") == 0;
    token_ids.push_back(is_name ? kName : static_cast<unsigned char>(text[at]));
    at += is_name ? 4 : 1;
  }
  return token_ids;
}

SchemaCompilerOptions ByteOptions() {
  SchemaCompilerOptions options = {.eos_token_ids = {kEos, kOtherEos}, .tokenize = Tokenized};
  for (int c = 0; c < 256; ++c) options.token_bytes.emplace_back(1, static_cast<char>(c));
  options.token_bytes.resize(kVocabSize);
  options.token_bytes[kEos] = "<eos>";
  options.token_bytes[kName] = "name";
  return options;
}

step::TokenMatcherFactory Factory(const std::string& schema) {
  auto compiler = SchemaCompiler::Create(ByteOptions());
  EXPECT_TRUE(compiler.ok()) << compiler.status().ToString();
  auto factory = (*compiler)->Compile(schema);
  EXPECT_TRUE(factory.ok()) << factory.status().ToString();
  return *factory;  // outlives its compiler
}

std::unique_ptr<TokenMatcher> Matcher(const std::string& schema) { return *Factory(schema)(); }

std::vector<int32_t> Allowed(TokenMatcher& matcher) {
  std::vector<uint32_t> mask(step::NumMaskWords(kVocabSize), 0xDEADBEEF);
  const Status status = matcher.FillMask(mask);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<int32_t> allowed;
  for (int32_t token = 0; token < kVocabSize; ++token) {
    if (step::AllowsToken(mask, token)) allowed.push_back(token);
  }
  return allowed;
}

bool AcceptsAll(TokenMatcher& matcher, const std::string& text) {
  for (const int32_t token : Tokenized(text)) {
    if (!matcher.Accept(token)) return false;
  }
  return true;
}

bool Admits(const std::string& schema, const std::string& text) {
  const auto matcher = Matcher(schema);
  return AcceptsAll(*matcher, text) && matcher->Accept(kEos);
}

constexpr char kPerson[] =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"], "additionalProperties": false})";

TEST(SchemaCompilerTest, AdmitsWhatIsValid) {
  EXPECT_TRUE(Admits(kPerson, R"({"name": "Bob"})"));
  EXPECT_TRUE(Admits(kPerson, "{ \"name\":\"\\u00e9\\\"\xC3\xA9\",\n\"age\" : -3 }"));
  EXPECT_FALSE(Admits(kPerson, R"({"age": 3})"));
  EXPECT_FALSE(Admits(kPerson, R"({"name": "Bob", "x": 1})"));
  EXPECT_FALSE(Admits(kPerson, R"({"name": "Bob")"));
  EXPECT_TRUE(Admits(R"({"enum": ["a/b", 3, null]})", R"("a/b")"));
  EXPECT_TRUE(Admits("{}", R"([1, {"a": null}])"));
}

TEST(SchemaCompilerTest, AfterTheEndOnlyEndsComeAndAreTakenBack) {
  const auto matcher = Matcher(R"({"type": "null"})");
  ASSERT_TRUE(AcceptsAll(*matcher, "null"));
  ASSERT_TRUE(matcher->Accept(kOtherEos));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{kEos, kOtherEos}));
  EXPECT_FALSE(matcher->Accept('n'));
  ASSERT_TRUE(matcher->Accept(kEos) && matcher->Accept(kEos));
  matcher->Rollback(3);
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{kEos, kOtherEos}));
  matcher->Rollback(4);
  EXPECT_TRUE(AcceptsAll(*matcher, "null") && matcher->Accept(kEos));
}

TEST(SchemaCompilerTest, TokensOutsideTextsAreRefused) {
  const auto matcher = Matcher(R"({"type": "string"})");
  ASSERT_TRUE(matcher->Accept('"'));
  for (const int32_t token : {kEos, kPadding, kVocabSize, -1}) {
    EXPECT_FALSE(matcher->Accept(token)) << token;
  }
  EXPECT_TRUE(AcceptsAll(*matcher, "<eos>\""));
}

TEST(SchemaCompilerTest, ARefusedTokenChangesNothing) {
  const auto matcher = Matcher(kPerson);
  ASSERT_TRUE(AcceptsAll(*matcher, "{ "));
  const std::vector<int32_t> before = Allowed(*matcher);
  EXPECT_FALSE(matcher->Accept('x'));
  EXPECT_EQ(Allowed(*matcher), before);
}

TEST(SchemaCompilerTest, WhiteSpaceIsBoundedOutsideStrings) {
  const auto matcher = Matcher(R"({"type": "array", "items": {"type": "string"}})");
  const std::string item = "\"" + std::string(20, ' ') + "\\\"  \"";
  ASSERT_TRUE(AcceptsAll(*matcher, "[" + item + std::string(8, '\n')));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{',', ']'}));
  EXPECT_FALSE(matcher->Accept(' '));
  matcher->Rollback(1);
  EXPECT_TRUE(matcher->Accept(' '));
  EXPECT_TRUE(AcceptsAll(*matcher, ",  \"\"]"));
}

TEST(SchemaCompilerTest, StringsHaveNoSurrogates) {
  const auto matcher = Matcher(R"({"type": "string"})");
  ASSERT_TRUE(AcceptsAll(*matcher, "\"\xED"));
  EXPECT_FALSE(matcher->Accept(0xA0));
  EXPECT_EQ(Allowed(*matcher).back(), 0x9F);
  EXPECT_TRUE(AcceptsAll(*matcher, "\x9F\xBF\""));
}

TEST(SchemaCompilerTest, WhatMustFollowIsForced) {
  const auto matcher = Matcher(R"({"enum": ["namex", "name"]})");
  ASSERT_TRUE(matcher->Accept('"'));
  EXPECT_EQ(Allowed(*matcher), (std::vector<int32_t>{'n', kName}));  // one token: it may grow
  const auto person = Matcher(kPerson);
  ASSERT_TRUE(AcceptsAll(*person, "{\""));
  std::vector<int32_t> forced;
  person->AppendForced(8, &forced);
  EXPECT_EQ(forced, (std::vector<int32_t>{kName}));
  EXPECT_EQ(Allowed(*person), forced);
  EXPECT_FALSE(person->Accept('n'));
  ASSERT_TRUE(person->Accept(kName));
  EXPECT_EQ(Allowed(*person), (std::vector<int32_t>{'"'}));
  forced.clear();
  person->AppendForced(8, &forced);
  EXPECT_TRUE(forced.empty());
}

TEST(SchemaCompilerTest, BadInputIsAnError) {
  auto compiler = SchemaCompiler::Create(ByteOptions());
  ASSERT_TRUE(compiler.ok());
  for (const char* schema : {"{", "3", R"({"type": "objec"})", R"({"not": {}, "type": 3})",
                             R"({"type": "integer", "minimum": 3, "maximum": 1})"}) {
    EXPECT_EQ((*compiler)->Compile(schema).status().code(), StatusCode::kInvalidArgument) << schema;
  }
  SchemaCompilerOptions options = ByteOptions();
  options.eos_token_ids = {kVocabSize};
  EXPECT_FALSE(SchemaCompiler::Create(options).ok());
  options.eos_token_ids = {};
  EXPECT_FALSE(SchemaCompiler::Create(options).ok());
  EXPECT_FALSE(SchemaCompiler::Create({.eos_token_ids = {0}}).ok());
  std::vector<uint32_t> mask(1);
  EXPECT_FALSE(Matcher("{}")->FillMask(mask).ok());
}

}  // namespace
}  // namespace pagemill::grammar
