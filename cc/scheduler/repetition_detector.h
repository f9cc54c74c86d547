// File: cc/scheduler/repetition_detector.h
// Does an output end with a pattern of tokens that stands there several times in a row? The rule is
// that of vLLM's `repetition_detection`.
//
//   RepetitionDetector detector(request.sampling);  // sampling.detects_repetition()
//   output.push_back(token);
//   if (detector.Add(output)) ...  // e.g. ... 7 1 2 1 2 1 2, with a pattern of 2 tokens, 3 times
//
// For each length of a pattern it counts the last tokens that equal the one so many places before.
// So a token takes O(longest pattern), whatever the output and the wanted number of repetitions.
#ifndef PAGEMILL_CC_SCHEDULER_REPETITION_DETECTOR_H_
#define PAGEMILL_CC_SCHEDULER_REPETITION_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/step/sampling_params.h"

namespace pagemill::scheduler {

class RepetitionDetector {
 public:
  // `sampling` is valid.
  explicit RepetitionDetector(const step::SamplingParams& sampling);

  // `output` has one token more than at the last call. True if it ends with a repetition.
  bool Add(std::span<const int32_t> output);

  // The next output is another one.
  void Restart();

 private:
  size_t shortest_;                 // pattern, in tokens
  int64_t num_repetitions_;         // after the first time
  std::vector<int32_t> num_equal_;  // by the length of the pattern, from the shortest
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_REPETITION_DETECTOR_H_
