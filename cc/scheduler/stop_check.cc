#include "cc/scheduler/stop_check.h"

#include <vector>

namespace pagemill::scheduler {
namespace {

// The lists are short: most models have one EOS token, most requests no stop token.
bool Contains(const std::vector<int32_t>& ids, int32_t token) {
  for (int32_t id : ids) {
    if (id == token) return true;
  }
  return false;
}

}  // namespace

std::optional<Stop> CheckStop(const step::SamplingParams& sampling, int32_t token,
                              int32_t num_output_tokens, int32_t num_tokens,
                              int32_t max_request_tokens) {
  // The token that makes the output min_tokens long may itself stop.
  if (num_output_tokens >= sampling.min_tokens) {
    if (!sampling.ignore_eos && Contains(sampling.eos_token_ids, token)) return Stop{};
    if (Contains(sampling.stop_token_ids, token)) return Stop{step::FinishReason::kStop, token};
  }
  if (num_output_tokens >= sampling.max_tokens || num_tokens >= max_request_tokens) {
    return Stop{step::FinishReason::kLength, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace pagemill::scheduler
