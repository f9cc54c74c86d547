// File: cc/scheduler/draft_length.h
// How many draft tokens of one request are worth verifying in its next step. A draft costs a token
// and a row of logits of a step whether it is accepted or not; with few requests running both are
// free, with many they slow all of them down. So the length grows by one with each step whose
// drafts were all accepted, falls to what was accepted otherwise, and is cut to an equal part of
// what a step may spend on drafts.
//
//   DraftLength length;                                     // of one request
//   int32_t n = length.Get(limits, /*num_running=*/12);     // verify at most n
//   length.Verified(limits, /*num_drafts=*/n, /*num_accepted=*/1);
#ifndef PAGEMILL_CC_SCHEDULER_DRAFT_LENGTH_H_
#define PAGEMILL_CC_SCHEDULER_DRAFT_LENGTH_H_

#include <algorithm>
#include <cstdint>

namespace pagemill::scheduler {

struct DraftLimits {
  int32_t max_draft_tokens = 0;       // of one request in one step; 0 = no drafts
  int32_t max_step_draft_tokens = 0;  // of all requests that run; 0 = no bound of its own
};

class DraftLength {
 public:
  int32_t Get(const DraftLimits& limits, int32_t num_running) const {
    const int32_t most = std::min(limits.max_draft_tokens, kFirst + grown_);
    if (limits.max_step_draft_tokens == 0 || num_running == 0) return most;
    return std::min(most, limits.max_step_draft_tokens / num_running);
  }

  // Only where `num_drafts` > 0.
  void Verified(const DraftLimits& limits, int32_t num_drafts, int32_t num_accepted) {
    const int32_t now = kFirst + grown_;
    if (num_accepted < num_drafts) {
      // One at least, or a request could never show again that drafts pay.
      grown_ = std::max(1, std::min(now - 1, num_accepted)) - kFirst;
    } else if (now < limits.max_draft_tokens) {
      ++grown_;
    }
  }

 private:
  static constexpr int32_t kFirst = 3;  // before anything is known about the request
  int32_t grown_ = 0;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_DRAFT_LENGTH_H_
