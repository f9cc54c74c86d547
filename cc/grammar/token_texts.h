// File: cc/grammar/token_texts.h
// What the matchers of one vocabulary share beside xgrammar's tables.
#ifndef PAGEMILL_CC_GRAMMAR_TOKEN_TEXTS_H_
#define PAGEMILL_CC_GRAMMAR_TOKEN_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/grammar/schema_compiler.h"

namespace pagemill::grammar {

// Thread-safe.
class TokenTexts {
 public:
  explicit TokenTexts(SchemaCompilerOptions options);

  int32_t vocab_size() const { return static_cast<int32_t>(options_.token_bytes.size()); }
  const std::string& bytes(int32_t token_id) const { return options_.token_bytes[token_id]; }
  const std::vector<std::string>& all_bytes() const { return options_.token_bytes; }
  const std::vector<int32_t>& eos_token_ids() const { return options_.eos_token_ids; }
  bool IsEos(int32_t token_id) const;
  // Masks (cc/step/token_mask.h) of the tokens that begin with white space of JSON, and of those
  // that would make the byte 0xED before them a surrogate.
  std::span<const uint32_t> begins_with_space() const { return begins_with_space_; }
  std::span<const uint32_t> ends_surrogate() const { return ends_surrogate_; }

  // Tokens that begin `text`, whatever comes behind it: those of `text` without the last one, which
  // could have become one with what follows.
  std::vector<int32_t> Beginning(const std::string& text);

 private:
  SchemaCompilerOptions options_;  // without the bytes of tokens that no text has
  std::vector<uint32_t> begins_with_space_;
  std::vector<uint32_t> ends_surrogate_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<int32_t>> beginnings_;  // guarded by mutex_
};

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// UTF-8 has no surrogates, which xgrammar's strings allow: behind this byte comes 0x80 to 0x9F.
inline constexpr char kSurrogateLead = '\xED';

}  // namespace pagemill::grammar

#endif  // PAGEMILL_CC_GRAMMAR_TOKEN_TEXTS_H_
