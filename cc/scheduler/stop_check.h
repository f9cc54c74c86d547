// File: cc/scheduler/stop_check.h
// Does a request end with the token it just got? Stop strings are not checked here but by the
// code that turns tokens into text, and repetition by RepetitionDetector.
#ifndef PAGEMILL_CC_SCHEDULER_STOP_CHECK_H_
#define PAGEMILL_CC_SCHEDULER_STOP_CHECK_H_

#include <cstdint>
#include <optional>

#include "cc/step/finish_reason.h"
#include "cc/step/sampling_params.h"

namespace pagemill::scheduler {

struct Stop {
  step::FinishReason reason = step::FinishReason::kStop;
  std::optional<int32_t> stop_token_id;  // the client's stop token; not set for EOS
  friend bool operator==(const Stop&, const Stop&) = default;
};

// `num_output_tokens` and `num_tokens` (prompt included) count `token`. Order: no stop token before
// min_tokens; EOS; the client's stop tokens; max_tokens; the context of `max_request_tokens`.
std::optional<Stop> CheckStop(const step::SamplingParams& sampling, int32_t token,
                              int32_t num_output_tokens, int32_t num_tokens,
                              int32_t max_request_tokens);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_STOP_CHECK_H_
