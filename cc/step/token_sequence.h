// File: cc/step/token_sequence.h
// A request's tokens, prompt then output, seen as one sequence without copying.
//
//   TokenSequence tokens(request.prompt_token_ids, output_token_ids);
//   tokens.CopyTo(begin, end, &plan_entry.token_ids);
//
// Borrows both parts: valid until either changes.
#ifndef PAGEMILL_CC_STEP_TOKEN_SEQUENCE_H_
#define PAGEMILL_CC_STEP_TOKEN_SEQUENCE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace pagemill::step {

class TokenSequence {
 public:
  TokenSequence(std::span<const int32_t> prompt, std::span<const int32_t> output)
      : prompt_(prompt), output_(output) {}

  int32_t size() const { return prompt_size() + static_cast<int32_t>(output_.size()); }
  int32_t prompt_size() const { return static_cast<int32_t>(prompt_.size()); }
  int32_t operator[](int32_t i) const {
    return i < prompt_size() ? prompt_[i] : output_[i - prompt_size()];
  }

  // Replaces `out` by the tokens [begin, end); keeps its capacity.
  void CopyTo(int32_t begin, int32_t end, std::vector<int32_t>* out) const {
    out->clear();
    if (end - begin == 1) {  // most calls: a decode step
      out->push_back((*this)[begin]);
      return;
    }
    for (std::span<const int32_t> part : Parts(begin, end)) {
      out->insert(out->end(), part.begin(), part.end());
    }
  }

  // The tokens [begin, end), of the prompt and of the output.
  std::array<std::span<const int32_t>, 2> Parts(int32_t begin, int32_t end) const {
    const int32_t n = prompt_size(), border = std::clamp(n, begin, end);
    const auto at = [](int32_t i) { return static_cast<size_t>(i); };
    return {begin < border ? prompt_.subspan(at(begin), at(border - begin)) : prompt_.first(0),
            border < end ? output_.subspan(at(border - n), at(end - border)) : output_.first(0)};
  }

 private:
  std::span<const int32_t> prompt_;
  std::span<const int32_t> output_;
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_TOKEN_SEQUENCE_H_
