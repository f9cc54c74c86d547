// File: cc/step/text_codec.h
// What stages exchange, as text: for traces that can be recorded and replayed, and for a person who
// looks at a step. One line of `key=value` fields per request and per result entry; numbers are
// exact (floats as the hex of their bits), strings are hex. The same text on every machine.
//
//   std::string line = ToText(request);
//   PAGEMILL_ASSIGN_OR_RETURN(Request again, ParseRequest(line));
//
// A plan is written only: a replay makes it again and compares. Parsing garbage gives kDataLoss.
#ifndef PAGEMILL_CC_STEP_TEXT_CODEC_H_
#define PAGEMILL_CC_STEP_TEXT_CODEC_H_

#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::step {

std::string ToText(const Request& request);    // one line, no line end
std::string ToText(const StepPlan& plan);      // a line, and one per entry; lines end with '\n'
std::string ToText(const StepResult& result);  // a line, and one per entry; lines end with '\n'

StatusOr<Request> ParseRequest(std::string_view text);
StatusOr<StepResult> ParseStepResult(std::string_view text);

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_TEXT_CODEC_H_
