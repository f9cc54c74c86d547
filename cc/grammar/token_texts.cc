#include "cc/grammar/token_texts.h"

#include <algorithm>
#include <utility>

#include "cc/step/token_mask.h"

namespace pagemill::grammar {
namespace {

constexpr size_t kMaxBeginnings = 4096;  // of texts, whose length the schemas bound

bool EndsSurrogate(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return 0xA0 <= byte && byte <= 0xBF;
}

bool HasSurrogate(const std::string& bytes) {
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == kSurrogateLead && EndsSurrogate(bytes[i + 1])) return true;
  }
  return false;
}

}  // namespace

TokenTexts::TokenTexts(SchemaCompilerOptions options)
    : options_(std::move(options)),
      begins_with_space_(step::NumMaskWords(vocab_size())),
      ends_surrogate_(begins_with_space_.size()) {
  for (int32_t token = 0; token < vocab_size(); ++token) {
    std::string& bytes = options_.token_bytes[token];
    if (HasSurrogate(bytes)) bytes.clear();
    if (bytes.empty()) continue;
    if (IsJsonSpace(bytes.front())) step::AllowToken(begins_with_space_, token);
    if (EndsSurrogate(bytes.front())) step::AllowToken(ends_surrogate_, token);
  }
}

bool TokenTexts::IsEos(int32_t token_id) const {
  return std::ranges::find(options_.eos_token_ids, token_id) != options_.eos_token_ids.end();
}

std::vector<int32_t> TokenTexts::Beginning(const std::string& text) {
  if (!options_.tokenize) return {};
  {
    std::lock_guard lock(mutex_);
    if (const auto it = beginnings_.find(text); it != beginnings_.end()) return it->second;
  }
  std::vector<int32_t> token_ids = options_.tokenize(text);  // not under the lock: may call Python
  std::string written;
  for (const int32_t token : token_ids) {
    if (token < 0 || token >= vocab_size()) return {};
    written += bytes(token);
  }
  if (written != text) token_ids.clear();
  if (!token_ids.empty()) token_ids.pop_back();
  std::lock_guard lock(mutex_);
  if (beginnings_.size() == kMaxBeginnings) beginnings_.clear();
  return beginnings_.emplace(text, std::move(token_ids)).first->second;
}

}  // namespace pagemill::grammar
