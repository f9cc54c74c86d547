// File: cc/sampling/testing/scripted_proposer.h
// A DraftProposer for tests: a function of the text returns the next token.
//
//   ScriptedProposer proposer([](std::span<const int32_t> text) { return text.back() + 1; });
#ifndef PAGEMILL_CC_SAMPLING_TESTING_SCRIPTED_PROPOSER_H_
#define PAGEMILL_CC_SAMPLING_TESTING_SCRIPTED_PROPOSER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cc/sampling/draft_proposer.h"

namespace pagemill::sampling {

class ScriptedProposer final : public DraftProposer {
 public:
  // The token after a text; -1 = no guess.
  using Guess = std::function<int32_t(std::span<const int32_t> text)>;

  explicit ScriptedProposer(Guess guess) : guess_(std::move(guess)) {}

  void Start(step::RequestIndex index, std::span<const int32_t> tokens) override {
    texts_.erase(index);
    if (!tokens.empty()) texts_[index].assign(tokens.begin(), tokens.end());
  }
  void Observe(step::RequestIndex index, std::span<const int32_t> tokens) override {
    std::vector<int32_t>& text = texts_.at(index);
    text.insert(text.end(), tokens.begin(), tokens.end());
  }
  void Propose(step::RequestIndex index, int32_t max_tokens,
               std::vector<int32_t>* drafts) override {
    drafts->clear();
    std::vector<int32_t> text = texts_.at(index);
    for (int32_t i = 0; i < max_tokens; ++i) {
      const int32_t token = guess_(text);
      if (token < 0) return;
      drafts->push_back(token);
      text.push_back(token);
    }
  }

 private:
  Guess guess_;
  std::map<step::RequestIndex, std::vector<int32_t>> texts_;
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_TESTING_SCRIPTED_PROPOSER_H_
