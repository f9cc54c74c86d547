// File: cc/sim/engine_node.h
// One simulated engine: the real scheduler, with a cost model instead of a runner. It has no clock;
// the caller passes the time.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto node, EngineNode::Create(options, /*max_step_us=*/0,
//                                                         &cost_model, &requests));
//   PAGEMILL_RETURN_IF_ERROR(node->Add(std::move(request)));
//   std::optional<StepCost> step = node->Start(now);    // ends at now + step->total_ns
//   node->Finish(&events);
//
// One step at a time. `requests` must have a record of each added request. Thread safety: none.
#ifndef PAGEMILL_CC_SIM_ENGINE_NODE_H_
#define PAGEMILL_CC_SIM_ENGINE_NODE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/step_budget.h"
#include "cc/scheduler/request_event.h"
#include "cc/scheduler/scheduler.h"
#include "cc/sim/cost_model.h"
#include "cc/sim/request_table.h"
#include "cc/step/step_plan.h"

namespace pagemill::sim {

class EngineNode {
 public:
  // The pointers must outlive the node. kInvalidArgument if the options are invalid.
  // `max_step_us` as in engine::EngineOptions.
  static StatusOr<std::unique_ptr<EngineNode>> Create(const scheduler::SchedulerOptions& options,
                                                      std::optional<int64_t> max_step_us,
                                                      const CostModel* cost,
                                                      RequestTable* requests);

  // See Scheduler::Add().
  Status Add(step::Request request) { return scheduler_->Add(std::move(request)); }
  // Plans a step and returns its cost; empty if one is running or nothing can run. Sets start_ns of
  // the requests that begin.
  std::optional<StepCost> Start(int64_t now_ns);
  // Ends the running step and appends its events.
  void Finish(std::vector<scheduler::RequestEvent>* events);

  bool running() const { return running_; }
  int32_t num_tokens() const { return plan_.total_num_tokens; }  // of the latest step
  int32_t num_entries() const { return static_cast<int32_t>(plan_.scheduled.size()); }
  bool HasWork() const { return scheduler_->HasWork(); }
  scheduler::SchedulerStats stats() const { return scheduler_->stats(); }
  // null unless KvCacheOptions::max_events is set
  const kv_cache::EventLog* kv_events() { return scheduler_->kv_events(); }
  Status CheckIntegrity() const { return scheduler_->CheckIntegrity(); }

 private:
  EngineNode(std::unique_ptr<scheduler::Scheduler> scheduler, std::optional<int64_t> max_step_us,
             const CostModel* cost, RequestTable* requests, int32_t num_slots);

  struct Slot {
    step::RequestId id;
    int32_t prompt_size = 0;
  };

  std::unique_ptr<scheduler::Scheduler> scheduler_;
  engine::StepBudgeter budgeter_;
  const CostModel* cost_;
  RequestTable* requests_;
  std::vector<Slot> slots_;  // the request in each slot of the plan
  step::StepPlan plan_;
  bool running_ = false;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ENGINE_NODE_H_
