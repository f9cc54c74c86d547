// File: cc/step/logits_processor.h
// What changes the logits of one request before its tokens are chosen: code of its submitter.
//
//   request.logits_processor = [](const LogitsRowText& text, std::span<float> logits) {
//     if (!text.output_token_ids.empty()) logits[text.output_token_ids.back()] -= 2.0f;
//     return OkStatus();
//   };
#ifndef PAGEMILL_CC_STEP_LOGITS_PROCESSOR_H_
#define PAGEMILL_CC_STEP_LOGITS_PROCESSOR_H_

#include <cstdint>
#include <functional>
#include <span>

#include "cc/base/status.h"

namespace pagemill::step {

// The tokens in front of the one that is chosen from a row of logits.
struct LogitsRowText {
  std::span<const int32_t> prompt_token_ids;
  std::span<const int32_t> output_token_ids;
};

// Changes `logits` [vocab_size] in place; -inf excludes a token, NaN and +inf fail the request.
//
// Obligations of an implementer:
// 1. The result depends on the tokens and the logits alone: rows behind drafts, and those of a
//    request that was preempted, may be computed in another order, and twice.
// 2. Calls may be concurrent, on any thread.
// 3. Not OK: the request fails with this status.
using LogitsProcessor = std::function<Status(const LogitsRowText& text, std::span<float> logits)>;

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_LOGITS_PROCESSOR_H_
