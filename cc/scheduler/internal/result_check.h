// File: cc/scheduler/internal/result_check.h
// Runners are written by others: what they return is checked before it is believed.
#ifndef PAGEMILL_CC_SCHEDULER_INTERNAL_RESULT_CHECK_H_
#define PAGEMILL_CC_SCHEDULER_INTERNAL_RESULT_CHECK_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/scheduler/internal/steps_in_flight.h"
#include "cc/scheduler/request_state.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/step/step_result.h"

namespace pagemill::scheduler::internal {

// The runner's failure of the request, or kInternal if the result is not one of `entry`, which is
// the oldest in flight of the request. O(tokens of the result).
Status CheckResult(const RequestState& request, const PlannedEntry& entry,
                   const step::RequestResult& result, const SchedulerOptions& options);

}  // namespace pagemill::scheduler::internal

#endif  // PAGEMILL_CC_SCHEDULER_INTERNAL_RESULT_CHECK_H_
