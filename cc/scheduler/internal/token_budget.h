// File: cc/scheduler/internal/token_budget.h
// How many tokens of which request run in a step: budgets of tokens and of rows of logits, chunks
// of long prompts, shares of prompts that take several steps (partial prefills), and media items,
// which an encoder makes whole. With several pipeline stages also how many requests run to their
// last known token, so that others are left for the next step.
//
//   TokenBudget budget(options, max_request_tokens, &encoder_cache);
//   budget.StartStep({.num_tokens = 2048, .num_prefill_tokens = 512, .num_running = 3});
//   const int32_t n = budget.NumTokens(request);          // 0: it does not run in this step
//   budget.Take(&request, {.num_tokens = n, .sample = true});
//
// Borrows options and encoder cache. Thread safety: none. Each call is O(1), or O(media items) for
// a request with some that are not computed.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_TOKEN_BUDGET_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_TOKEN_BUDGET_H_

#include <cstdint>

#include "cc/scheduler/request_state.h"
#include "cc/scheduler/resources/encoder_cache.h"
#include "cc/scheduler/scheduler_options.h"

namespace pagemill::scheduler::internal {

class TokenBudget {
 public:
  struct Step {
    int32_t num_tokens = 0;          // may run
    int32_t num_prefill_tokens = 0;  // of those, of prompts; at least one
    int32_t num_running = 0;         // requests
    int32_t num_waiting = 0;
    int32_t num_starting = 0;  // of those, for which there is room
  };
  struct Use {  // of one request in this step
    int32_t num_tokens = 0;
    int32_t num_drafts = 0;
    bool starts = false;
    bool sample = false;
    bool prompt_logprobs = false;
  };

  TokenBudget(const SchedulerOptions& options, int32_t max_request_tokens,
              const EncoderCache* encoder_cache)
      : options_(options),
        max_request_tokens_(max_request_tokens),
        encoder_cache_(*encoder_cache) {}

  // Before the step's first request.
  void StartStep(const Step& step);
  int32_t tokens() const { return tokens_; }  // left in this step
  int32_t rows() const { return rows_; }

  // How many tokens, without drafts, the request may run behind its num_scheduled_tokens; 0 if it
  // cannot run now. More than the cap of a long prefill if a media item is not to be cut.
  int32_t NumTokens(const RequestState& request) const;
  // Would the request, which may not run, run if encoder outputs were no matter? If the tokens of
  // the step do not suffice for an item that is not to be cut, the request waits for its turn.
  bool LacksEncoder(const RequestState& request) const;
  // The logprobs of the prompt tokens that a step runs are wanted from it.
  static bool NeedsPromptLogprobs(const RequestState& request) {
    return !request.prompt_logprobs_done && request.num_scheduled_tokens < request.prompt_size;
  }
  // The request's num_scheduled_tokens are those behind the use.
  void Take(RequestState* request, const Use& use);

  // Partial prefills, of requests that run.
  enum class PartialStart { kNow, kLater, kTooLong };  // kTooLong: others may pass it
  PartialStart MayStartPartly(const RequestState& request) const;
  bool MayStartLong() const { return num_long_ < options_.max_long_partial_prefills; }
  bool IsLong(const RequestState& request) const {
    return options_.max_long_partial_prefills > 0 &&
           request.prompt_size > options_.long_prefill_token_threshold;
  }
  void SetPrefillsPartly(RequestState* request, bool partly);
  int32_t num_partial() const { return num_partial_; }
  int32_t num_long() const { return num_long_; }

 private:
  int32_t NumReachable(const RequestState& request) const;
  int32_t NumWithoutMedia(const RequestState& request) const;
  int32_t Most(const RequestState& request) const;
  int32_t Share(int32_t num_tokens) const;

  const SchedulerOptions& options_;
  const int32_t max_request_tokens_;
  const EncoderCache& encoder_cache_;

  int32_t tokens_ = 0;
  int32_t rows_ = 0;
  int32_t completions_ = 0;     // requests that may run all their known tokens
  int32_t prefill_tokens_ = 0;  // of `tokens_`, for prefills
  int32_t prefill_shares_ = 0;  // among so many partial ones; 0 = not shared
  int32_t num_partial_ = 0;     // running requests that prefill partly
  int32_t num_long_ = 0;        // of those, as the options count them
};

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_TOKEN_BUDGET_H_
