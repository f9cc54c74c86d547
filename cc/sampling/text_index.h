// File: cc/sampling/text_index.h
// Tokens, with an index of where their runs of kLeastMatch tokens occur: for proposers that look
// for what followed the end of a text elsewhere.
//
//   TextIndex index;
//   for (int32_t token : text) index.Append(token);
//   std::vector<size_t> places;
//   index.Find(suffix, &places);    // index.tokens()[places[0]] followed it most recently
//
// It may hold several texts, each behind a kBetweenTexts: runs lie within one. Texts of another
// `owner` are not found, and take no places of a search.
//
// Append(): O(1) amortized, Find(): O(kMostPlaces). Memory: at most 32 bytes a token. Thread
// safety: none.
#ifndef PAGEMILL_CC_SAMPLING_TEXT_INDEX_H_
#define PAGEMILL_CC_SAMPLING_TEXT_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pagemill::sampling {

class TextIndex {
 public:
  static constexpr size_t kLeastMatch = 3;
  static constexpr size_t kMostPlaces = 64;  // of one search
  static constexpr int32_t kBetweenTexts = -1;

  void Append(int32_t token, uint64_t owner = 0);
  std::span<const int32_t> tokens() const { return tokens_; }
  // Replaces *places by the positions behind the most recent occurrences of the last kLeastMatch
  // tokens of `suffix`, of which one token more is known; the most recent first.
  void Find(std::span<const int32_t> suffix, std::vector<size_t>* places, uint64_t owner = 0) const;
  // Memory.
  size_t bytes() const;

 private:
  void Insert(size_t end);
  void Grow();

  std::vector<int32_t> tokens_;
  std::vector<uint32_t> hashes_;  // by position: of the run before it; 0: there is none
  // By position: the one before it whose run has the same bucket; 0: none.
  std::vector<int32_t> before_;
  std::vector<int32_t> buckets_;  // the newest position of each; a power of two
};

// Tokens of `text` before position `end` that equal the last ones of `suffix`, at most `most`.
size_t MatchBefore(std::span<const int32_t> text, size_t end, std::span<const int32_t> suffix,
                   size_t most);

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TEXT_INDEX_H_
