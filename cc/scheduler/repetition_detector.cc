#include "cc/scheduler/repetition_detector.h"

#include <algorithm>

namespace pagemill::scheduler {

RepetitionDetector::RepetitionDetector(const step::SamplingParams& sampling)
    : shortest_(static_cast<size_t>(std::max(sampling.repetition_min_pattern, 1))),
      num_repetitions_(sampling.repetition_min_count - 1),
      num_equal_(static_cast<size_t>(sampling.repetition_max_pattern) + 1 - shortest_) {}

bool RepetitionDetector::Add(std::span<const int32_t> output) {
  bool repeats = false;
  for (size_t i = 0; i < num_equal_.size() && shortest_ + i < output.size(); ++i) {
    const size_t length = shortest_ + i;
    const bool equal = output.back() == output[output.size() - 1 - length];
    num_equal_[i] = equal ? num_equal_[i] + 1 : 0;
    repeats |= num_equal_[i] >= num_repetitions_ * static_cast<int64_t>(length);
  }
  return repeats;
}

void RepetitionDetector::Restart() { std::ranges::fill(num_equal_, 0); }

}  // namespace pagemill::scheduler
