// File: cc/sampling/shared_texts.h
// Outputs of earlier requests, for the drafts of later ones: bounded in texts and in tokens, the
// oldest half goes first.
//
//   SharedTexts shared({.max_texts = 10000});
//   shared.Add(text, salt);
//   shared.Find(suffix, salt, [](std::span<const int32_t> text, size_t behind) { ... });
//
// Texts are found under the salt that they came with only: what a request gets from others is seen
// in its times, as with the prefix cache, which the same salt divides. All share the room: many
// texts of one salt make those of others leave.
//
// Add(): O(tokens). Memory: at most 32 bytes for each of max_tokens, salts included. Thread safety:
// none.
#ifndef PAGEMILL_CC_SAMPLING_SHARED_TEXTS_H_
#define PAGEMILL_CC_SAMPLING_SHARED_TEXTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/sampling/text_index.h"

namespace pagemill::sampling {

struct SharedTextsOptions {
  size_t max_texts = 10000;
  size_t max_tokens = size_t{1} << 20;  // 33 MB
};

class SharedTexts {
 public:
  explicit SharedTexts(const SharedTextsOptions& options) : options_(options) {}

  // Keeps the end of a text of more than half of all tokens, and nothing with max_texts = 0.
  void Add(std::span<const int32_t> text, std::string_view salt);
  // Calls visit(tokens, behind) for places where `suffix` occurs: tokens[behind] followed.
  template <typename Visit>
  void Find(std::span<const int32_t> suffix, std::string_view salt, const Visit& visit) {
    const uint64_t owner = OwnerOf(salt);
    for (const Generation* generation : {&newer_, &older_}) {
      generation->index.Find(suffix, &places_, owner);
      for (const size_t place : places_) {
        if (generation->SaltAt(place) == salt) visit(generation->index.tokens(), place);
      }
    }
  }
  size_t num_texts() const { return newer_.texts.size() + older_.texts.size(); }

 private:
  struct Text {
    size_t begin = 0;  // in the index
    std::string salt;
  };
  struct Generation {
    TextIndex index;
    std::vector<Text> texts;
    size_t salt_tokens = 0;  // that the salts of texts count as

    std::string_view SaltAt(size_t place) const {
      const auto behind =
          std::upper_bound(texts.begin(), texts.end(), place,
                           [](size_t wanted, const Text& text) { return wanted < text.begin; });
      return (behind - 1)->salt;
    }
  };

  static uint64_t OwnerOf(std::string_view salt);

  const SharedTextsOptions options_;
  Generation newer_, older_;
  std::vector<size_t> places_;  // scratch
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_SHARED_TEXTS_H_
