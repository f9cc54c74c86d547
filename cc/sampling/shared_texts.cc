#include "cc/sampling/shared_texts.h"

#include <utility>

namespace pagemill::sampling {

void SharedTexts::Add(std::span<const int32_t> text, std::string_view salt) {
  const size_t most_tokens = options_.max_tokens / 2, most_texts = (options_.max_texts + 1) / 2;
  if (options_.max_texts == 0 || most_tokens < 2) return;
  text = text.last(std::min(text.size(), most_tokens - 1));
  if (newer_.texts.size() == most_texts ||
      newer_.index.tokens().size() + text.size() + 1 > most_tokens) {
    older_ = std::exchange(newer_, Generation());
  }
  newer_.texts.push_back({.begin = newer_.index.tokens().size(), .salt = std::string(salt)});
  newer_.index.Append(TextIndex::kBetweenTexts);
  for (const int32_t token : text) newer_.index.Append(token);
}

}  // namespace pagemill::sampling
