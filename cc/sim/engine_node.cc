#include "cc/sim/engine_node.h"

#include <utility>

#include "cc/engine/step_cost.h"
#include "cc/step/step_result.h"

namespace pagemill::sim {

StatusOr<std::unique_ptr<EngineNode>> EngineNode::Create(const scheduler::SchedulerOptions& options,
                                                         std::optional<int64_t> max_step_us,
                                                         const CostModel* cost,
                                                         RequestTable* requests) {
  auto scheduler = scheduler::Scheduler::Create(options);
  PAGEMILL_RETURN_IF_ERROR(scheduler.status());
  return std::unique_ptr<EngineNode>(
      new EngineNode(*std::move(scheduler), max_step_us, cost, requests, options.max_num_seqs));
}

EngineNode::EngineNode(std::unique_ptr<scheduler::Scheduler> scheduler,
                       std::optional<int64_t> max_step_us, const CostModel* cost,
                       RequestTable* requests, int32_t num_slots)
    : scheduler_(std::move(scheduler)),
      budgeter_(max_step_us),
      cost_(cost),
      requests_(requests),
      slots_(static_cast<size_t>(num_slots)) {}

std::optional<StepCost> EngineNode::Start(int64_t now_ns) {
  if (running_) return std::nullopt;
  scheduler_->Schedule(&plan_, budgeter_.Next(scheduler_->num_decoding()));
  if (plan_.empty()) return std::nullopt;
  for (const step::ScheduledRequest& entry : plan_.scheduled) {
    if (entry.start == nullptr) continue;
    const step::RequestId id = entry.start->id;
    RequestRecord& record = (*requests_)[id];
    slots_[entry.index.value()] = {id, record.prompt_size};
    if (!record.start_ns) record.start_ns = now_ns;
  }
  running_ = true;
  const StepCost cost = cost_->Of(plan_);
  budgeter_.Observe(engine::StepWork::Of(plan_), cost.total_ns / 1000);
  return cost;
}

void EngineNode::Finish(std::vector<scheduler::RequestEvent>* events) {
  PAGEMILL_CHECK(running_);
  running_ = false;
  step::StepResult result;
  result.step_id = plan_.step_id;
  result.results.resize(plan_.scheduled.size());
  for (size_t i = 0; i < plan_.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan_.scheduled[i];
    result.results[i].index = entry.index;
    if (!entry.sample) continue;
    const Slot& slot = slots_[entry.index.value()];
    const int32_t position = entry.num_computed_tokens + entry.num_tokens() - slot.prompt_size;
    result.results[i].sampled_token_ids.push_back(requests_->OutputToken(slot.id, position));
  }
  PAGEMILL_CHECK(scheduler_->Update(std::move(result), events).ok());
}

}  // namespace pagemill::sim
