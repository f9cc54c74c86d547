// File: cc/scheduler/input_part.h
// What follows a part of the input of a request with Request::streaming_input. Its prompt is the
// first part of its first turn.
#ifndef PAGEMILL_CC_SCHEDULER_INPUT_PART_H_
#define PAGEMILL_CC_SCHEDULER_INPUT_PART_H_

#include <cstdint>

namespace pagemill::scheduler {

enum class InputPart : int32_t {
  kMore = 0,  // more input of this turn: the part is computed, nothing is sampled
  kTurn = 1,  // nothing: the turn generates; then the request waits for its next turn
  kLast = 2,  // nothing: the turn generates; then the request ends
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_INPUT_PART_H_
