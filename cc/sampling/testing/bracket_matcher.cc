#include "cc/sampling/testing/bracket_matcher.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cc/step/token_mask.h"

namespace pagemill::sampling {

BracketMatcher::BracketMatcher(BracketMatcherOptions options)
    : options_(std::move(options)), states_(1) {}

std::optional<BracketMatcher::State> BracketMatcher::After(int32_t token_id) const {
  constexpr std::string_view kOpening = "([{", kClosing = ")]}";
  State state = states_.back();
  if (token_id == options_.eos_token_id) {
    if (!state.open.empty()) return std::nullopt;
    state.ended = true;
    return state;
  }
  const auto vocab_size = static_cast<int32_t>(options_.vocabulary.size());
  if (state.ended || token_id < 0 || token_id >= vocab_size) return std::nullopt;
  const std::string& text = options_.vocabulary[token_id];
  if (text.empty()) return std::nullopt;
  for (char c : text) {
    if (kOpening.find(c) != std::string_view::npos) {
      if (static_cast<int32_t>(state.open.size()) == options_.max_depth) return std::nullopt;
      state.open.push_back(c);
    } else if (const size_t kind = kClosing.find(c); kind != std::string_view::npos) {
      if (state.open.empty() || state.open.back() != kOpening[kind]) return std::nullopt;
      state.open.pop_back();
    }
  }
  return state;
}

Status BracketMatcher::FillMask(std::span<uint32_t> mask) {
  std::fill(mask.begin(), mask.end(), 0u);
  for (size_t id = 0; id < options_.vocabulary.size(); ++id) {
    const auto token_id = static_cast<int32_t>(id);
    if (After(token_id)) step::AllowToken(mask, token_id);
  }
  return OkStatus();
}

bool BracketMatcher::Accept(int32_t token_id) {
  std::optional<State> after = After(token_id);
  if (!after) return false;
  states_.push_back(*std::move(after));
  return true;
}

void BracketMatcher::Rollback(int32_t num_tokens) {
  PAGEMILL_CHECK(num_tokens >= 0 && static_cast<size_t>(num_tokens) < states_.size());
  states_.resize(states_.size() - static_cast<size_t>(num_tokens));
}

}  // namespace pagemill::sampling
