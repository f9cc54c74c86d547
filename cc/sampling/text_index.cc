#include "cc/sampling/text_index.h"

#include <algorithm>

namespace pagemill::sampling {
namespace {

constexpr size_t kFirstBuckets = 64;
constexpr size_t kMostSeen = 1024;  // places of a search, those of other runs in its bucket too

// Hash of the run before `end`. The multiplier is one of Steele and Vigna, "Computationally Easy,
// Spectrally Good Multipliers", 2021.
uint32_t HashBefore(std::span<const int32_t> tokens, size_t end, uint64_t owner) {
  uint64_t hash = owner;
  for (size_t i = 1; i <= TextIndex::kLeastMatch; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[end - i])) * 0xD1342543DE82EF95u;
    hash ^= hash >> 32;
  }
  return std::max(uint32_t{1}, static_cast<uint32_t>(hash));
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
void TextIndex::Append(int32_t token, uint64_t owner) {
  const size_t end = tokens_.size();
  before_.push_back(0);
  hashes_.push_back(0);
  if (token != kBetweenTexts && end >= kLeastMatch) {
    const std::span<const int32_t> run = tokens().subspan(end - kLeastMatch);
    if (std::find(run.begin(), run.end(), kBetweenTexts) == run.end()) {
      hashes_[end] = HashBefore(tokens_, end, owner);
      if (end >= buckets_.size()) Grow();
      Insert(end);
    }
  }
  tokens_.push_back(token);
}

void TextIndex::Insert(size_t end) {
  int32_t& newest = buckets_[hashes_[end] & (buckets_.size() - 1)];
  before_[end] = newest;
  newest = static_cast<int32_t>(end);
}

void TextIndex::Grow() {
  buckets_.assign(std::max(kFirstBuckets, 2 * buckets_.size()), 0);
  for (size_t end = kLeastMatch; end < tokens_.size(); ++end) {
    if (hashes_[end] != 0) Insert(end);
  }
}

void TextIndex::Find(std::span<const int32_t> suffix, std::vector<size_t>* places,
                     uint64_t owner) const {
  places->clear();
  if (suffix.size() < kLeastMatch || buckets_.empty()) return;
  const uint32_t hash = HashBefore(suffix, suffix.size(), owner);
  auto at = static_cast<size_t>(buckets_[hash & (buckets_.size() - 1)]);
  for (size_t seen = 0; at != 0 && seen < kMostSeen && places->size() < kMostPlaces; ++seen) {
    if (hashes_[at] == hash && MatchBefore(tokens_, at, suffix, kLeastMatch) == kLeastMatch) {
      places->push_back(at);
    }
    at = static_cast<size_t>(before_[at]);
  }
}

size_t TextIndex::bytes() const {
  const size_t count =
      tokens_.capacity() + hashes_.capacity() + before_.capacity() + buckets_.capacity();
  return count * sizeof(int32_t);
}

}  // namespace pagemill::sampling
