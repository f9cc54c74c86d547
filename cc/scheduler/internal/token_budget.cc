#include "cc/scheduler/internal/token_budget.h"

#include <algorithm>
#include <limits>

namespace pagemill::scheduler::internal {

void TokenBudget::StartStep(const Step& step) {
  tokens_ = step.num_tokens;
  rows_ = options_.max_num_logits_rows;
  prefill_tokens_ = std::max(1, step.num_prefill_tokens);
  prefill_shares_ = 0;
  completions_ = std::numeric_limits<int32_t>::max();
  if (const int32_t stages = options_.pipeline_stages; stages > 1) {
    completions_ = std::max(1, (step.num_running + step.num_starting + stages - 1) / stages);
  }
  if (options_.max_partial_prefills == 0 || !options_.chunked_prefill) return;
  // What requests that decode leave is for the prefills that run and for those that may start.
  const int32_t num_decoding = step.num_running - num_partial_;
  prefill_tokens_ = std::min(prefill_tokens_, std::max(1, tokens_ - num_decoding));
  prefill_shares_ =
      std::max(1, std::min(options_.max_partial_prefills, num_partial_ + step.num_waiting));
}

// Known tokens, and those that steps in flight give at most, if the plan may go ahead of them. A
// request that ends if it gets all of those waits: with what is in flight it may need no more.
int32_t TokenBudget::NumReachable(const RequestState& request) const {
  const int32_t known = request.num_tokens();
  const int32_t unknown = request.num_tokens_in_flight();
  if (unknown == 0 || !options_.decode_ahead) return known;
  const auto num_outputs = static_cast<int32_t>(request.output_token_ids.size());
  const bool ends = num_outputs + unknown >= request.max_tokens ||
                    known + unknown >= max_request_tokens_;
  return ends ? known : known + unknown;
}

// How many of a request's `num_tokens` tokens may run: what is left, or an equal part of it. What
// one does not use is for those after it. A single token is what a decoding request runs.
int32_t TokenBudget::Share(int32_t num_tokens) const {
  if (num_tokens == 1) return 1;
  const int32_t share = std::max(1, prefill_tokens_ / std::max(1, prefill_shares_));
  return std::min({num_tokens, share, prefill_tokens_});
}

int32_t TokenBudget::NumWithoutMedia(const RequestState& request) const {
  const int32_t left = NumReachable(request) - request.num_scheduled_tokens;
  if (left <= 0) return 0;
  int32_t n = std::min(left, tokens_);
  int32_t least = 1;
  if (options_.chunked_prefill) {
    if (options_.long_prefill_token_threshold > 0) {
      n = std::min(n, options_.long_prefill_token_threshold);
    }
    n = Share(n);
  } else {
    least = std::max(least, request.prompt_size - request.num_scheduled_tokens);
    if (least > 1 && prefill_tokens_ == 0) return 0;
  }
  if (NeedsPromptLogprobs(request)) {
    n = std::min(n, rows_);
  } else if (n == left && rows_ == 0 && request.samples()) {
    --n;  // all but the token after which a row would be needed
  }
  if (n == left && completions_ <= 0) return 0;
  return n < least ? 0 : n;
}

// To which NumTokens() may raise what runs.
int32_t TokenBudget::Most(const RequestState& request) const {
  if (!request.prompt_logprobs_done) return std::min(tokens_, rows_);
  const int32_t left = request.num_tokens() - request.num_scheduled_tokens;
  const bool no_row = rows_ == 0 && request.generates;
  return std::min(tokens_, no_row ? left - 1 : left);
}

int32_t TokenBudget::NumTokens(const RequestState& request) const {
  const int32_t n = NumWithoutMedia(request);
  const int32_t begin = request.num_scheduled_tokens;
  if (n == 0 || begin >= request.media_end) return n;
  const int32_t fits =
      encoder_cache_.Fit(*request.request, request.held_media, {begin, n, Most(request)});
  return !options_.chunked_prefill && begin + fits < request.prompt_size ? 0 : fits;
}

bool TokenBudget::LacksEncoder(const RequestState& request) const {
  const int32_t begin = request.num_scheduled_tokens;
  if (begin >= request.media_end || NumWithoutMedia(request) == 0) return false;
  if (options_.chunked_media_input) return true;
  for (const step::MediaItem& item : request.request->media) {
    const int32_t end = item.first_token + item.num_tokens;
    if (end > begin) return end - begin <= Most(request);
  }
  return true;
}

void TokenBudget::Take(RequestState* request, const Use& use) {
  tokens_ -= use.num_tokens + use.num_drafts;
  if (use.prompt_logprobs) {
    rows_ -= use.num_tokens;
  } else if (use.sample) {
    rows_ -= 1 + use.num_drafts;
  }
  if (use.starts || request->prefills_partly) {
    prefill_tokens_ = std::max(0, prefill_tokens_ - use.num_tokens);
    if (prefill_shares_ > 1) --prefill_shares_;
  }
  const bool partly = request->num_scheduled_tokens - use.num_drafts < request->num_tokens();
  if (!partly) --completions_;
  SetPrefillsPartly(request, partly);
}

void TokenBudget::SetPrefillsPartly(RequestState* request, bool partly) {
  if (request->prefills_partly == partly) return;
  request->prefills_partly = partly;
  const int32_t change = partly ? 1 : -1;
  num_partial_ += change;
  if (IsLong(*request)) num_long_ += change;
}

TokenBudget::PartialStart TokenBudget::MayStartPartly(const RequestState& request) const {
  if (IsLong(request) && !MayStartLong()) return PartialStart::kTooLong;
  const int32_t most = options_.max_partial_prefills;
  return most > 0 && num_partial_ >= most ? PartialStart::kLater : PartialStart::kNow;
}

}  // namespace pagemill::scheduler::internal
