#include "cc/sampling/text_index.h"

#include <algorithm>

namespace pagemill::sampling {
namespace {

constexpr size_t kFirstBuckets = 64;

// Hash of the run before `end`. The multiplier is one of Steele and Vigna, "Computationally Easy,
// Spectrally Good Multipliers", 2021.
uint64_t HashBefore(std::span<const int32_t> tokens, size_t end) {
  uint64_t hash = 0;
  for (size_t i = 1; i <= TextIndex::kLeastMatch; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[end - i])) * 0xD1342543DE82EF95u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

size_t MatchBefore(std::span<const int32_t> text, size_t end, std::span<const int32_t> suffix,
                   size_t most) {
  most = std::min({most, end, suffix.size()});
  size_t match = 0;
  while (match < most && text[end - 1 - match] == suffix[suffix.size() - 1 - match] &&
         text[end - 1 - match] != TextIndex::kBetweenTexts) {
    ++match;
  }
  return match;
}

// A run enters when the token behind it is known, so that the end of a text does not find itself.
void TextIndex::Append(int32_t token) {
  const size_t end = tokens_.size();
  before_.push_back(0);
  if (token != kBetweenTexts && end >= kLeastMatch) {
    if (end >= buckets_.size()) Grow();
    Insert(end);
  }
  tokens_.push_back(token);
}

void TextIndex::Insert(size_t end) {
  const std::span<const int32_t> run = tokens().subspan(end - kLeastMatch, kLeastMatch);
  if (std::find(run.begin(), run.end(), kBetweenTexts) != run.end()) return;
  int32_t& newest = buckets_[HashBefore(tokens_, end) & (buckets_.size() - 1)];
  before_[end] = newest;
  newest = static_cast<int32_t>(end);
}

void TextIndex::Grow() {
  buckets_.assign(std::max(kFirstBuckets, 2 * buckets_.size()), 0);
  for (size_t end = kLeastMatch; end < tokens_.size(); ++end) {
    before_[end] = 0;
    if (tokens_[end] != kBetweenTexts) Insert(end);
  }
}

void TextIndex::Find(std::span<const int32_t> suffix, std::vector<size_t>* places) const {
  places->clear();
  if (suffix.size() < kLeastMatch || buckets_.empty()) return;
  int32_t end = buckets_[HashBefore(suffix, suffix.size()) & (buckets_.size() - 1)];
  for (size_t seen = 0; end != 0 && seen < kMostPlaces; ++seen) {
    const auto at = static_cast<size_t>(end);
    if (MatchBefore(tokens_, at, suffix, kLeastMatch) == kLeastMatch) places->push_back(at);
    end = before_[at];
  }
}

size_t TextIndex::bytes() const {
  return (tokens_.capacity() + before_.capacity() + buckets_.capacity()) * sizeof(int32_t);
}

}  // namespace pagemill::sampling
