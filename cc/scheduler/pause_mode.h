// File: cc/scheduler/pause_mode.h
// What becomes of the requests that an engine has when it pauses. In every mode new requests are
// taken and wait for the end of the pause.
#ifndef PAGEMILL_CC_SCHEDULER_PAUSE_MODE_H_
#define PAGEMILL_CC_SCHEDULER_PAUSE_MODE_H_

#include <cstdint>

namespace pagemill::scheduler {

enum class PauseMode : int32_t {
  kKeep = 0,   // no step is planned; running requests keep slots and blocks, and go on afterwards
  kWait = 1,   // running requests finish, preempted ones included; no other request starts
  kAbort = 2,  // all requests end
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_PAUSE_MODE_H_
