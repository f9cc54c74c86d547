// File: cc/scheduler/testing/traced_scheduler.h
// A scheduler whose calls are text, and so is what they bring.
//
//   TracedScheduler traced(options, TracedConnector::kNone);
//   traced.Call("schedule\n");   // "plan step=1 ...\nrun slot=0 ...\n"
//
// | call | what |
// |---|---|
// | request ... (step/text_codec.h) | Add |
// | abort ID, release ID | Abort, Release |
// | extend ID PART TOKEN ... | Extend; PART is the number of an InputPart |
// | expire MICROSECONDS | Expire |
// | pause MODE, resume, reset PREEMPTS | Pause, Resume, ResetPrefixCache |
// | schedule, schedule PREFILL_TOKENS | Schedule without and with a budget |
// | result ... and its answers (step/text_codec.h) | Update |
// | transferred ID BLOCKS CODE | FinishTransfers with one result |
// | abandon ID | AbandonTransfer |
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_TRACED_SCHEDULER_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_TRACED_SCHEDULER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/transfer.h"
#include "cc/scheduler/scheduler.h"
#include "cc/step/step_plan.h"

namespace pagemill::scheduler {

enum class TracedConnector { kNone, kTiers, kFiles };

class TracedScheduler {
 public:
  TracedScheduler(const SchedulerOptions& options, TracedConnector connector);

  // Aborts the process where the text is no call, or the scheduler lost its integrity.
  std::string Call(std::string_view text);

  const step::StepPlan& plan() const { return plan_; }  // of the last "schedule"
  // That the last call started.
  const std::vector<kv_cache::KvTransfer>& transfers() const { return transfers_; }
  const Scheduler& scheduler() const { return *scheduler_; }

 private:
  std::string Dispatch(std::string_view text);
  std::string EventsToText() const;
  std::string TransfersToText() const;

  std::unique_ptr<kv_cache::KvConnector> connector_;
  std::unique_ptr<Scheduler> scheduler_;
  step::StepPlan plan_;
  std::vector<RequestEvent> events_;
  std::vector<kv_cache::KvTransfer> transfers_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_TRACED_SCHEDULER_H_
