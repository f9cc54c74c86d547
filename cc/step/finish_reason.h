// File: cc/step/finish_reason.h
// Why a request ended.
#ifndef PAGEMILL_CC_STEP_FINISH_REASON_H_
#define PAGEMILL_CC_STEP_FINISH_REASON_H_

#include <cstdint>
#include <string_view>

namespace pagemill::step {

enum class FinishReason : int32_t {
  kStop = 0,        // EOS, a stop token, or a pooling request that is done
  kLength = 1,      // max_tokens, or the context is full
  kAbort = 2,       // the client's wish
  kError = 3,       // see the status that comes with it
  kRepetition = 4,  // the output repeats itself (SamplingParams::detects_repetition())
};

inline constexpr int kNumFinishReasons = 5;

// "stop", "length", "abort", "error", "repetition": the spelling of the HTTP surface.
std::string_view FinishReasonName(FinishReason reason);

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_FINISH_REASON_H_
