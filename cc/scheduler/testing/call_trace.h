// File: cc/scheduler/testing/call_trace.h
// Random calls of a scheduler, recorded as text together with all that they brought: plans, events,
// transfers. A replay makes the calls again, from the text alone, and compares.
//
//   const CallTrace trace = RecordCalls({.options = options, .num_calls = 2000});
//   EXPECT_EQ(ReplayCalls({.options = options}, trace.text), 2000);
//
// The runner and the worker that copies blocks are fakes: their answers are drawn, and part of
// the trace.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_CALL_TRACE_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_CALL_TRACE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/scheduler/scheduler_options.h"
#include "cc/scheduler/scheduler_stats.h"
#include "cc/scheduler/testing/traced_scheduler.h"

namespace pagemill::scheduler {

struct TraceSetup {
  SchedulerOptions options;
  TracedConnector connector = TracedConnector::kNone;
  size_t max_steps_in_flight = 1;
  uint32_t seed = 1;
  int num_calls = 0;
};

struct CallTrace {
  std::string text;
  SchedulerStats stats;                                // at its end
  std::array<int64_t, kNumParkReasons> most_parked{};  // at a time, by ParkReason
};

CallTrace RecordCalls(const TraceSetup& setup);

// The number of calls that brought what the trace says, up to the first one that did not.
int ReplayCalls(const TraceSetup& setup, std::string_view trace);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_CALL_TRACE_H_
