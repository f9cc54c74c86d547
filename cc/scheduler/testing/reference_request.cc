#include "cc/scheduler/testing/reference_request.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {

using step::FakeModel;
using step::FinishReason;
using step::SamplingParams;

ReferenceRequest::ReferenceRequest(step::Request request, const Limits& limits)
    : request_(std::move(request)),
      limits_(limits),
      held_(request_.starts_held),
      input_open_(request_.streaming_input),
      session_open_(request_.streaming_input),
      context_(request_.prompt_token_ids.ToVector()) {
  if (!input_open_) turn_ = Expect();
}

namespace {

bool EndsWithRepetition(const SamplingParams& p, const std::vector<int32_t>& tokens) {
  const auto size = static_cast<int32_t>(tokens.size());
  for (int32_t length = std::max(p.repetition_min_pattern, 1); length <= p.repetition_max_pattern;
       ++length) {
    const int32_t first = size - length * p.repetition_min_count;
    if (first >= 0 && std::equal(tokens.begin() + first, tokens.end() - length,
                                 tokens.begin() + first + length)) {
      return true;
    }
  }
  return false;
}

}  // namespace

ReferenceRequest::Turn ReferenceRequest::Expect() const {
  if (request_.pooling) return {{}, FinishReason::kStop, std::nullopt};
  Turn turn;
  const SamplingParams& p = request_.sampling;
  const auto size = static_cast<int32_t>(context_.size());
  const int32_t most = std::min(p.max_tokens, limits_.max_request_tokens - size);
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::count(ids.begin(), ids.end(), id) > 0;
  };
  for (int32_t token :
       FakeModel::Continue(context_, static_cast<size_t>(most), limits_.vocab_size)) {
    turn.tokens.push_back(token);
    if (static_cast<int32_t>(turn.tokens.size()) < p.min_tokens) continue;
    const bool ends = !p.ignore_eos && has(p.eos_token_ids, token);
    if (!ends && !has(p.stop_token_ids, token)) {
      const bool is_last = static_cast<int32_t>(turn.tokens.size()) == most;
      if (is_last || !EndsWithRepetition(p, turn.tokens)) continue;
      turn.reason = FinishReason::kRepetition;
      return turn;
    }
    turn.reason = FinishReason::kStop;
    if (!ends) turn.stop_token_id = token;
    return turn;
  }
  return turn;
}

std::optional<int64_t> ReferenceRequest::NextDeadline() const {
  const std::optional<int64_t>& start = request_.start_deadline_us;
  const std::optional<int64_t>& end = request_.deadline_us;
  if (started_ || !start) return end;
  return end ? std::min(*start, *end) : *start;
}

StatusCode ReferenceRequest::ExtendCode(const std::vector<int32_t>& token_ids,
                                        InputPart part) const {
  if (!request_.streaming_input || !input_open_) return StatusCode::kFailedPrecondition;
  const auto size = static_cast<int32_t>(context_.size() + token_ids.size());
  const bool nothing = token_ids.empty() && (part == InputPart::kMore || !turn_has_input_);
  if (nothing || size + 1 > limits_.max_request_tokens) return StatusCode::kInvalidArgument;
  return StatusCode::kOk;
}

void ReferenceRequest::Extend(const std::vector<int32_t>& token_ids, InputPart part) {
  context_.insert(context_.end(), token_ids.begin(), token_ids.end());
  turn_has_input_ = true;
  input_open_ = part == InputPart::kMore;
  session_open_ = part != InputPart::kLast;
  if (!input_open_) turn_ = Expect();
}

bool ReferenceRequest::Take(const RequestEvent& event) {
  EXPECT_TRUE(started_ && !held_) << "news of a request that did not start";
  EXPECT_TRUE(turn_) << "news of a request whose input is not complete";
  if (!turn_) return true;
  EXPECT_EQ(event.first_tokens, tokens_.empty() && !event.new_token_ids.empty());
  EXPECT_GE(event.num_cached_tokens, 0);
  EXPECT_LT(event.num_cached_tokens, static_cast<int32_t>(context_.size()));
  if (event.prompt_logprobs) CheckPromptLogprobs(event);
  CheckLogprobs(event);
  tokens_.insert(tokens_.end(), event.new_token_ids.begin(), event.new_token_ids.end());
  const bool prefix = tokens_.size() <= turn_->tokens.size() &&
                      std::equal(tokens_.begin(), tokens_.end(), turn_->tokens.begin());
  EXPECT_TRUE(prefix) << "other tokens than the model gives it alone";
  return event.finish_reason || event.turn_finished ? EndTurn(event) : false;
}

void ReferenceRequest::CheckLogprobs(const RequestEvent& event) const {
  const bool wanted = request_.sampling.logprobs != SamplingParams::kNoLogprobs;
  ASSERT_EQ(event.logprobs.size(), wanted ? event.new_token_ids.size() : 0);
  std::vector<int32_t> context = context_;
  context.insert(context.end(), tokens_.begin(), tokens_.end());
  for (size_t i = 0; i < event.logprobs.size(); ++i) {
    const int32_t token = event.new_token_ids[i];
    EXPECT_EQ(event.logprobs[i].logprob, FakeModel::Logprobs(context, token, 0).logprob);
    context.push_back(token);
  }
}

void ReferenceRequest::CheckPromptLogprobs(const RequestEvent& event) {
  EXPECT_FALSE(prompt_logprobs_seen_);
  prompt_logprobs_seen_ = true;
  const std::span<const int32_t> prompt(request_.prompt_token_ids);
  ASSERT_EQ(event.prompt_logprobs->size(), prompt.size() - 1);
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    const step::TokenLogprobs& entry = (*event.prompt_logprobs)[i];
    EXPECT_EQ(entry.token_id, prompt[i + 1]);
    EXPECT_EQ(entry.logprob, FakeModel::Logprobs(prompt.first(i + 1), 0, 0).logprob);
  }
}

void ReferenceRequest::CheckRoutedExperts(const RequestEvent& event) const {
  if (!request_.return_routed_experts) {
    EXPECT_TRUE(event.routed_experts.empty());
    return;
  }
  std::vector<int32_t> context = context_;
  context.insert(context.end(), tokens_.begin(), tokens_.end());
  EXPECT_EQ(event.routed_experts,
            FakeModel::RoutedExperts(context, context.size() - !tokens_.empty()));
}

// True where the request is over, and not only its turn.
bool ReferenceRequest::EndTurn(const RequestEvent& event) {
  EXPECT_EQ(tokens_, turn_->tokens);
  EXPECT_EQ(event.stop_token_id, turn_->stop_token_id);
  const auto size = static_cast<int32_t>(context_.size() + tokens_.size());
  // Another turn takes a token of input and one of output.
  const bool goes_on = session_open_ && size + 2 <= limits_.max_request_tokens;
  EXPECT_EQ(goes_on ? event.turn_finished : event.finish_reason, turn_->reason);
  EXPECT_FALSE(goes_on ? event.finish_reason : event.turn_finished);
  if (!goes_on) {
    if (request_.pooling) {
      const std::span<const int32_t> prompt(request_.prompt_token_ids);
      EXPECT_EQ(event.pooled,
                limits_.token_rows ? FakeModel::TokenRows(prompt) : FakeModel::Pool(prompt));
    } else {
      const bool wanted = request_.sampling.prompt_logprobs != SamplingParams::kNoLogprobs;
      EXPECT_EQ(prompt_logprobs_seen_, wanted);
    }
    CheckRoutedExperts(event);
    return true;
  }
  context_.insert(context_.end(), tokens_.begin(), tokens_.end());
  tokens_.clear();
  turn_.reset();
  input_open_ = true;
  turn_has_input_ = false;
  return false;
}

}  // namespace pagemill::scheduler
