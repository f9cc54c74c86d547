// File: cc/scheduler/park_reason.h
// What a parked request waits for, other than its turn (docs/scheduling.md, "Parked requests").
#ifndef PAGEMILL_CC_SCHEDULER_PARK_REASON_H_
#define PAGEMILL_CC_SCHEDULER_PARK_REASON_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagemill::scheduler {

enum class ParkReason : int32_t {
  kHeld,            // Request::starts_held, until Scheduler::Release()
  kPrefixInFlight,  // a running request is computing blocks that this one needs next
  kAwaitingInput,   // all input so far is computed, or a turn is over; until Scheduler::Extend()
  kKvLookup,        // a connector does not know yet what it has; asked again with the next result
  kKvLoad,          // a connector loads blocks that will be the request's prefix
  kAdapterSlot,     // every adapter slot is taken by other adapters
  kEncoderBudget,   // its media do not fit beside those of other requests
  kLongPrefill,     // as many long prompts are partly computed as may be
  kPaused,          // it has not started, and the scheduler is paused (PauseMode)
};

inline constexpr size_t kNumParkReasons = 9;

// "held", "prefix_in_flight", ...: for metrics and messages.
constexpr std::string_view ParkReasonName(ParkReason reason) {
  constexpr std::string_view kNames[kNumParkReasons] = {
      "held",         "prefix_in_flight", "awaiting_input", "kv_lookup", "kv_load",
      "adapter_slot", "encoder_budget",   "long_prefill",   "paused"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_PARK_REASON_H_
