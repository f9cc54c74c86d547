// File: cc/grammar/schema_compiler.h
// JSON Schemas to token matchers, by xgrammar's core: masks in a few microseconds, without the GIL.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto compiler, SchemaCompiler::Create({
//       .token_bytes = {"{", "\"", ..., ""}, .eos_token_ids = {151645}, .tokenize = tokenize}));
//   PAGEMILL_ASSIGN_OR_RETURN(request.new_token_matcher, compiler->Compile(schema));
//
// xgrammar ignores keywords that it does not know, and reads some others loosely. The caller knows
// which schemas it reads exactly and compiles soon: python/pagemill/structured/exact_schema.py.
//
// White space between the tokens of JSON is bounded here and not by the grammar, in which a bound
// leaves many tokens to be tried at run time: masks of 150,000 tokens take three times as long.
//
// Thread-safe. Matchers share what was compiled, and may outlive the compiler.
#ifndef PAGEMILL_CC_GRAMMAR_SCHEMA_COMPILER_H_
#define PAGEMILL_CC_GRAMMAR_SCHEMA_COMPILER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/token_matcher.h"

namespace pagemill::grammar {

// Returns the tokens that are exactly `text`, none if the tokenizer writes something else. Called
// on the thread that fills masks, about once for each text that a schema forces, such as a name.
using Tokenize = std::function<std::vector<int32_t>(const std::string& text)>;

struct SchemaCompilerOptions {
  // One text for each row of the logits; empty if no text has the token (control, padding).
  std::vector<std::string> token_bytes = {};
  std::vector<int32_t> eos_token_ids = {};  // those that end an output, at least one
  Tokenize tokenize = {};                   // empty: nothing is forced
};

class SchemaCompiler {
 public:
  // INVALID_ARGUMENT without tokens or without one that ends outputs. Takes 0.3 us a token.
  static StatusOr<std::unique_ptr<SchemaCompiler>> Create(SchemaCompilerOptions options);
  ~SchemaCompiler();
  SchemaCompiler(const SchemaCompiler&) = delete;
  SchemaCompiler& operator=(const SchemaCompiler&) = delete;

  // `schema` is JSON text. INVALID_ARGUMENT: it is no schema, or nothing is valid against it.
  StatusOr<step::TokenMatcherFactory> Compile(const std::string& schema);

 private:
  struct Impl;
  explicit SchemaCompiler(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace pagemill::grammar

#endif  // PAGEMILL_CC_GRAMMAR_SCHEMA_COMPILER_H_
