#include "cc/engine/step_budget.h"

#include <algorithm>

namespace pagemill::engine {

using scheduler::StepBudget;

// What the newest decode step did for each of its requests is done for so many.
StepWork StepBudgeter::DecodeWork(int32_t num_decoding) const {
  if (last_decode_.num_decoding == 0) return {.decode_tokens = num_decoding};
  return {.num_decoding = num_decoding,
          .decode_tokens = last_decode_.decode_tokens * num_decoding / last_decode_.num_decoding,
          .decode_context = last_decode_.decode_context * num_decoding / last_decode_.num_decoding};
}

StepBudget StepBudgeter::Next(int32_t num_decoding) const {
  if (max_step_us_ == 0 || num_decoding <= 0) return {};
  if (!cost_.known()) return {kLeastTokens};
  const double decode_us = cost_.Micros(DecodeWork(num_decoding));
  const double automatic_us =
      std::max(static_cast<double>(kLeastAutomaticMicros), kAutomaticMultiple * decode_us);
  const double limit_us = max_step_us_ ? static_cast<double>(*max_step_us_) : automatic_us;

  // The next part of a prompt attends to all parts before it.
  const StepWork token{.prefill_tokens = 1, .prefill_context = longest_prefill_};
  const double token_us = cost_.Micros(token) - cost_.Micros({});
  // Cost may rise steeply beyond what was measured, so the budget is at most doubled.
  const auto most = static_cast<double>(2 * most_prefill_tokens_);
  const double left_us = std::max(0.0, limit_us - decode_us);
  const double tokens = left_us < token_us * most ? left_us / token_us : most;
  return {std::max(kLeastTokens, static_cast<int32_t>(tokens))};
}

void StepBudgeter::Observe(const StepWork& work, int64_t duration_us) {
  if (max_step_us_ == 0) return;
  cost_.Observe(work, duration_us);
  if (work.num_decoding > 0) last_decode_ = work;
  if (work.prefill_tokens == 0) return;
  longest_prefill_ = work.longest_prefill;
  most_prefill_tokens_ = std::max(most_prefill_tokens_, work.prefill_tokens);
}

}  // namespace pagemill::engine
