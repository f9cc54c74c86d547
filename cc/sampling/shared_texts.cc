#include "cc/sampling/shared_texts.h"

#include <utility>

#include "cc/base/xxh3.h"

namespace pagemill::sampling {

uint64_t SharedTexts::OwnerOf(std::string_view salt) {
  return Xxh3_128(salt.data(), salt.size()).low;
}

void SharedTexts::Add(std::span<const int32_t> text, std::string_view salt) {
  const size_t most_tokens = options_.max_tokens / 2, most_texts = (options_.max_texts + 1) / 2;
  const size_t salt_tokens = salt.size() / sizeof(int32_t);
  if (options_.max_texts == 0 || most_tokens < 2 + salt_tokens) return;
  text = text.last(std::min(text.size(), most_tokens - 1 - salt_tokens));
  const size_t used = newer_.index.tokens().size() + newer_.salt_tokens;
  if (newer_.texts.size() == most_texts || used + text.size() + 1 + salt_tokens > most_tokens) {
    older_ = std::exchange(newer_, Generation());
  }
  newer_.texts.push_back({.begin = newer_.index.tokens().size(), .salt = std::string(salt)});
  newer_.salt_tokens += salt_tokens;
  newer_.index.Append(TextIndex::kBetweenTexts);
  const uint64_t owner = OwnerOf(salt);
  for (const int32_t token : text) newer_.index.Append(token, owner);
}

}  // namespace pagemill::sampling
