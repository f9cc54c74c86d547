#include "cc/scheduler/internal/result_check.h"

#include <algorithm>
#include <span>
#include <string>

#include "cc/step/step_plan.h"

namespace pagemill::scheduler::internal {
namespace {

// Null if all are tokens of the vocabulary; among drafts, placeholders are allowed.
const int32_t* FirstOutside(std::span<const int32_t> tokens, bool drafts, int32_t vocab_size) {
  for (const int32_t& token : tokens) {
    if (drafts && token == step::kPlaceholderTokenId) continue;
    if (token < 0 || (vocab_size != 0 && token >= vocab_size)) return &token;
  }
  return nullptr;
}

Status OutsideVocabulary(const char* how, int32_t token) {
  return Internal("the runner " + std::string(how) + " token " + std::to_string(token) +
                  ", which is outside the vocabulary");
}

Status CheckSampled(const RequestState& request, const PlannedEntry& entry,
                    const step::RequestResult& result, int32_t vocab_size) {
  const step::TokenList& tokens = result.sampled_token_ids;
  const int32_t num_verified = entry.num_drafts - result.num_missing_drafts;
  if (num_verified < 0 || num_verified > entry.num_drafts ||
      static_cast<int32_t>(tokens.size()) > num_verified + 1) {
    return Internal("the runner sampled " + std::to_string(tokens.size()) + " tokens behind " +
                    std::to_string(num_verified) + " of " + std::to_string(entry.num_drafts) +
                    " drafts");
  }
  const auto same = [](int32_t token, int32_t draft) {
    return token == draft || draft == step::kPlaceholderTokenId;
  };
  if (entry.knows_drafts && tokens.size() > 1 &&
      !std::equal(tokens.begin(), tokens.end() - 1, request.draft_token_ids.begin(), same)) {
    return Internal("the runner accepted tokens that were not drafted");
  }
  if (const int32_t* token = FirstOutside(tokens, /*drafts=*/false, vocab_size)) {
    return OutsideVocabulary("sampled", *token);
  }
  if (const int32_t* token = FirstOutside(result.draft_token_ids, /*drafts=*/true, vocab_size)) {
    return OutsideVocabulary("drafted", *token);
  }
  return OkStatus();
}

// Those of the tokens that the entry runs, and of the drafts that were accepted.
Status CheckRoutedExperts(const PlannedEntry& entry, const step::RequestResult& result,
                          int32_t per_token) {
  const size_t num_sampled = result.sampled_token_ids.size();
  const size_t num_tokens = static_cast<size_t>(entry.num_tokens) + num_sampled - (num_sampled > 0);
  const size_t wanted = num_tokens * static_cast<size_t>(per_token);
  if (result.routed_experts.size() == wanted) return OkStatus();
  return Internal("the runner gave " + std::to_string(result.routed_experts.size()) +
                  " routed experts instead of " + std::to_string(wanted));
}

}  // namespace

Status CheckResult(const RequestState& request, const PlannedEntry& entry,
                   const step::RequestResult& result, const SchedulerOptions& options) {
  if (!result.failure.ok()) return result.failure;
  if (result.index != entry.index) return Internal("the runner answered for another request");
  if (result.sampled_token_ids.empty() == entry.sample) {
    return Internal(entry.sample ? "the runner sampled no token" : "the runner sampled unasked");
  }
  if (entry.sample) {
    PAGEMILL_RETURN_IF_ERROR(CheckSampled(request, entry, result, options.vocab_size));
  }
  if (request.wants_logprobs && result.logprobs.size() != result.sampled_token_ids.size()) {
    return Internal("the runner gave logprobs for " + std::to_string(result.logprobs.size()) +
                    " of " + std::to_string(result.sampled_token_ids.size()) + " tokens");
  }
  const int32_t end = request.num_computed_tokens + entry.num_tokens;
  if (entry.prompt_logprobs) {
    const int32_t wanted = std::min(end, request.prompt_size - 1) - request.num_computed_tokens;
    if (static_cast<int32_t>(result.prompt_logprobs.size()) != wanted) {
      return Internal("the runner gave " + std::to_string(result.prompt_logprobs.size()) +
                      " prompt logprobs instead of " + std::to_string(wanted));
    }
  }
  if (request.wants_routed_experts) {
    PAGEMILL_RETURN_IF_ERROR(
        CheckRoutedExperts(entry, result, options.routed_experts_per_token));
  }
  if (request.pooling && end >= request.prompt_size && result.pooled.empty()) {
    return Internal("the runner gave no pooled output");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler::internal
