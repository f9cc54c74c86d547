#include "cc/grammar/transcript_matcher.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cc/step/token_mask.h"

namespace pagemill::grammar {
namespace {

// Excludes the tokens [begin, end).
void ForbidTokens(std::span<uint32_t> mask, int32_t begin, int32_t end) {
  for (; begin < end && begin % step::kTokensPerMaskWord != 0; ++begin) {
    step::ForbidToken(mask, begin);
  }
  for (; begin + step::kTokensPerMaskWord <= end; begin += step::kTokensPerMaskWord) {
    mask[begin / step::kTokensPerMaskWord] = 0;
  }
  for (; begin < end; ++begin) step::ForbidToken(mask, begin);
}

// Rules, and the mask of the tokens that may come anywhere.
struct Shared {
  TranscriptRules rules;
  std::vector<uint32_t> mask;
};

// Which tokens may come next, except those that are suppressed.
struct Allowed {
  bool text = true;
  bool other = true;  // neither text nor timestamps
  int32_t first_timestamp = 0, timestamps_end = 0;
};

class TranscriptMatcher final : public step::TokenMatcher {
 public:
  explicit TranscriptMatcher(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}

  Status FillMask(std::span<uint32_t> mask) override {
    if (mask.size() != shared_->mask.size()) {
      return InvalidArgument("the rules of transcripts are for a vocabulary of another size");
    }
    if (IsEnded()) {
      std::ranges::fill(mask, 0u);
      step::AllowToken(mask, rules().end);
      return OkStatus();
    }
    std::ranges::copy(shared_->mask, mask.begin());
    if (token_ids_.empty()) {
      for (const int32_t token_id : rules().suppressed_first) step::ForbidToken(mask, token_id);
    }
    if (!HasTimestamps()) return OkStatus();
    const Allowed allowed = Next();
    if (!allowed.text) ForbidTokens(mask, 0, rules().end);
    if (!allowed.other) ForbidTokens(mask, rules().end, rules().timestamp_begin);
    ForbidTokens(mask, rules().timestamp_begin, allowed.first_timestamp);
    ForbidTokens(mask, allowed.timestamps_end, rules().vocab_size);
    return OkStatus();
  }

  bool Accept(int32_t token_id) override {
    if (!MayCome(token_id)) return false;
    token_ids_.push_back(token_id);
    return true;
  }

  void Rollback(int32_t num_tokens) override {
    token_ids_.resize(token_ids_.size() - static_cast<size_t>(num_tokens));
  }

 private:
  const TranscriptRules& rules() const { return shared_->rules; }
  bool HasTimestamps() const { return rules().timestamp_begin != TranscriptRules::kNoTimestamps; }
  bool IsTimestamp(int32_t token_id) const { return token_id >= rules().timestamp_begin; }
  bool IsEnded() const { return !token_ids_.empty() && token_ids_.back() == rules().end; }

  bool MayCome(int32_t token_id) const {
    if (token_id < 0 || token_id >= rules().vocab_size) return false;
    if (IsEnded()) return token_id == rules().end;
    if (!step::AllowsToken(shared_->mask, token_id)) return false;
    const std::vector<int32_t>& first = rules().suppressed_first;
    if (token_ids_.empty() && std::ranges::find(first, token_id) != first.end()) return false;
    if (!HasTimestamps()) return true;
    const Allowed allowed = Next();
    if (token_id < rules().end) return allowed.text;
    if (!IsTimestamp(token_id)) return allowed.other;
    return token_id >= allowed.first_timestamp && token_id < allowed.timestamps_end;
  }

  Allowed Next() const {
    const int32_t begin = rules().timestamp_begin, end = rules().vocab_size;
    if (token_ids_.empty()) {
      const int64_t first_end = int64_t{begin} + rules().max_first_timestamp + 1;
      return {.text = false,
              .other = false,
              .first_timestamp = begin,
              .timestamps_end = static_cast<int32_t>(std::min<int64_t>(first_end, end))};
    }
    const auto is_timestamp = [&](int32_t token_id) { return IsTimestamp(token_id); };
    const auto newest = std::ranges::find_if(token_ids_.rbegin(), token_ids_.rend(), is_timestamp);
    // Every output begins with one.
    if (newest != token_ids_.rbegin()) {
      return {.first_timestamp = *newest + 1, .timestamps_end = end};
    }
    const bool opens_text = token_ids_.size() == 1 || is_timestamp(*(newest + 1));
    if (opens_text) return {.first_timestamp = end, .timestamps_end = end};
    return {.text = false, .first_timestamp = *newest, .timestamps_end = end};
  }

  const std::shared_ptr<const Shared> shared_;
  std::vector<int32_t> token_ids_;  // accepted
};

Status CheckToken(int32_t token_id, const TranscriptRules& rules) {
  if (token_id >= 0 && token_id < rules.vocab_size) return OkStatus();
  return InvalidArgument("the rules of transcripts name token " + std::to_string(token_id) +
                         ", the vocabulary has " + std::to_string(rules.vocab_size));
}

Status CheckTokens(const TranscriptRules& rules) {
  PAGEMILL_RETURN_IF_ERROR(CheckToken(rules.end, rules));
  for (const int32_t token_id : rules.suppressed) {
    PAGEMILL_RETURN_IF_ERROR(CheckToken(token_id, rules));
  }
  for (const int32_t token_id : rules.suppressed_first) {
    PAGEMILL_RETURN_IF_ERROR(CheckToken(token_id, rules));
  }
  if (rules.timestamp_begin == TranscriptRules::kNoTimestamps) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(CheckToken(rules.timestamp_begin, rules));
  if (rules.timestamp_begin > rules.end && rules.max_first_timestamp >= 0) return OkStatus();
  return InvalidArgument(
      "timestamps of transcripts come behind the token that ends them, and none is negative");
}

}  // namespace

StatusOr<step::TokenMatcherFactory> TranscriptMatchers(TranscriptRules rules) {
  PAGEMILL_RETURN_IF_ERROR(CheckTokens(rules));
  std::vector<uint32_t> mask(step::NumMaskWords(rules.vocab_size), ~uint32_t{0});
  for (const int32_t token_id : rules.suppressed) step::ForbidToken(mask, token_id);
  const auto shared = std::make_shared<const Shared>(Shared{std::move(rules), std::move(mask)});
  return step::TokenMatcherFactory([shared]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
    return std::unique_ptr<step::TokenMatcher>(new TranscriptMatcher(shared));
  });
}

}  // namespace pagemill::grammar
