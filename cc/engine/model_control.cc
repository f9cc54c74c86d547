#include "cc/engine/model_control.h"

#include "cc/kv_cache/held_prefixes.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::engine {
namespace {

using scheduler::Scheduler;

Status CheckNoSession(Scheduler* scheduler) {
  if (scheduler->held_prefixes().size() == 0) return OkStatus();
  return FailedPrecondition("a session is being saved or restored; try again when it is done");
}

}  // namespace

Status ModelControl::CheckOffered() const {
  if (control_ != nullptr) return OkStatus();
  return Unimplemented(
      "this runner's weights cannot leave memory or be replaced (--executor native can, with "
      "--pipeline-parallel-size 1)");
}

Status ModelControl::Sleep(KvMemory kv, double timeout_s) {
  PAGEMILL_RETURN_IF_ERROR(CheckOffered());
  const auto sleep = [this, kv](Scheduler* scheduler) -> Status {
    if (kv == KvMemory::kFree) {
      PAGEMILL_RETURN_IF_ERROR(CheckNoSession(scheduler));
      // What tiers and connectors hold stays good: the weights come back as they were.
      if (!scheduler->ResetPrefixCache(/*preempt_running=*/true, /*reset_connector=*/false)) {
        return Internal("blocks are held by something else than requests");
      }
    }
    PAGEMILL_RETURN_IF_ERROR(control_->Sleep(kv));
    loop_->SetAsleep(true);
    return OkStatus();
  };
  return loop_->RunAtRest(sleep, RestTask::Needs::kNoTransfer, timeout_s);
}

Status ModelControl::Wake(double timeout_s) {
  PAGEMILL_RETURN_IF_ERROR(CheckOffered());
  const auto wake = [this](Scheduler*) -> Status {
    if (!loop_->asleep()) return OkStatus();
    PAGEMILL_RETURN_IF_ERROR(control_->Wake());
    loop_->SetAsleep(false);
    return OkStatus();
  };
  return loop_->RunAtRest(wake, RestTask::Needs::kNoTransfer, timeout_s);
}

Status ModelControl::UpdateWeights(const WeightSources& sources, double timeout_s, NewWeights where,
                                   const std::optional<std::string>& version) {
  PAGEMILL_RETURN_IF_ERROR(CheckOffered());
  if (!weights_flag_.empty()) {
    return FailedPrecondition(
        "weights cannot be updated with " + weights_flag_ +
        ": KV for other engines is named by the weights that the engine started with; start it "
        "without that flag, or restart it");
  }
  const auto update = [&](Scheduler* scheduler) -> Status {
    PAGEMILL_RETURN_IF_ERROR(CheckNoSession(scheduler));
    bool committed = false;
    const auto commit = [scheduler, &committed]() -> Status {
      if (!scheduler->ResetPrefixCache(/*preempt_running=*/true)) {
        return FailedPrecondition(
            "the KV connector cannot forget KV of the old weights, so they stay");
      }
      scheduler->ResetEncoderCache();
      committed = true;
      return OkStatus();
    };
    const Status updated = control_->UpdateWeights(sources, where, commit);
    if (committed && !updated.ok()) loop_->SetAsleep(true);  // as the runner, whose device failed
    PAGEMILL_RETURN_IF_ERROR(updated);
    if (version) loop_->SetWeightVersion(*version);
    return OkStatus();
  };
  return loop_->RunAtRest(update, RestTask::Needs::kNoTransfer, timeout_s);
}

}  // namespace pagemill::engine
