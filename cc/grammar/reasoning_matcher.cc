#include "cc/grammar/reasoning_matcher.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/step/token_mask.h"

namespace pagemill::grammar {
namespace {

bool Contains(const std::vector<int32_t>& token_ids, int32_t token_id) {
  return std::ranges::find(token_ids, token_id) != token_ids.end();
}

class ReasoningMatcher final : public step::TokenMatcher {
 public:
  ReasoningMatcher(std::unique_ptr<step::TokenMatcher> constraint,
                   std::shared_ptr<const Reasoning> reasoning)
      : constraint_(std::move(constraint)), reasoning_(std::move(reasoning)) {
    begun_at_ = AtBeginning();
  }

  Status FillMask(std::span<uint32_t> mask) override {
    if (IsWithin()) {
      std::ranges::fill(mask, ~uint32_t{0});
      return OkStatus();
    }
    PAGEMILL_RETURN_IF_ERROR(constraint_->FillMask(mask));
    if (num_accepted_ > 0) return OkStatus();
    for (const int32_t opener : reasoning_->openers) step::AllowToken(mask, opener);
    return OkStatus();
  }

  bool Accept(int32_t token_id) override {
    if (IsWithin()) {
      if (Contains(reasoning_->closers, token_id)) begun_at_ = num_accepted_ + 1;
    } else if (num_accepted_ == 0 && Contains(reasoning_->openers, token_id)) {
      begun_at_ = kNotBegun;
    } else if (!constraint_->Accept(token_id)) {
      return false;
    }
    ++num_accepted_;
    return true;
  }

  void Rollback(int32_t num_tokens) override {
    const int32_t constrained = IsWithin() ? 0 : num_accepted_ - begun_at_;
    constraint_->Rollback(std::min(num_tokens, constrained));
    num_accepted_ -= num_tokens;
    if (num_accepted_ == 0) {
      begun_at_ = AtBeginning();
    } else if (num_accepted_ < begun_at_) {
      begun_at_ = kNotBegun;
    }
  }

  void AppendForced(size_t most, std::vector<int32_t>* token_ids) override {
    if (!IsWithin()) constraint_->AppendForced(most, token_ids);
  }

 private:
  static constexpr int32_t kNotBegun = -1;
  int32_t AtBeginning() const { return reasoning_->begins_within ? kNotBegun : 0; }
  bool IsWithin() const { return begun_at_ == kNotBegun; }

  const std::unique_ptr<step::TokenMatcher> constraint_;
  const std::shared_ptr<const Reasoning> reasoning_;
  int32_t num_accepted_ = 0;
  int32_t begun_at_;  // tokens that were accepted before the constraint began
};

}  // namespace

step::TokenMatcherFactory BehindReasoning(step::TokenMatcherFactory constraint,
                                          Reasoning reasoning) {
  auto shared = std::make_shared<const Reasoning>(std::move(reasoning));
  return [constraint = std::move(constraint),
          shared]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<step::TokenMatcher> matcher, constraint());
    return std::unique_ptr<step::TokenMatcher>(new ReasoningMatcher(std::move(matcher), shared));
  };
}

}  // namespace pagemill::grammar
