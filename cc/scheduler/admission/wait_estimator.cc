#include "cc/scheduler/admission/wait_estimator.h"

#include <algorithm>

namespace pagemill::scheduler {

void WaitEstimator::ObserveStep(int64_t num_tokens, int64_t duration_us) {
  if (num_tokens <= 0 || duration_us <= 0) return;
  // One very long step, of a stuck device say, weighs no more than a window.
  if (duration_us > kWindowMicros) {
    num_tokens = std::max<int64_t>(1, num_tokens * kWindowMicros / duration_us);
    duration_us = kWindowMicros;
  }
  tokens_ += num_tokens;
  micros_ += duration_us;
  if (micros_ <= kWindowMicros) return;
  tokens_ = std::max<int64_t>(1, tokens_ / 2);
  micros_ /= 2;
}

void WaitEstimator::ObserveOutput(int64_t num_tokens) {
  output_tokens_ += num_tokens;
  if (++num_outputs_ <= kWindowRequests) return;
  output_tokens_ /= 2;
  num_outputs_ /= 2;
}

std::optional<int64_t> WaitEstimator::WaitMicros(const WorkAhead& ahead) const {
  if (tokens_ == 0) return std::nullopt;
  const int64_t outputs = num_outputs_ == 0 ? 0 : ahead.ends * output_tokens_ / num_outputs_;
  // Fits: micros_ is at most 2^24.
  const int64_t tokens = std::min<int64_t>(ahead.prompt_tokens + outputs, int64_t{1} << 38);
  return tokens * micros_ / tokens_;
}

}  // namespace pagemill::scheduler
