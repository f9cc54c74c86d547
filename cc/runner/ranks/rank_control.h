// File: cc/runner/ranks/rank_control.h
// Sleep, wake and weight updates of all ranks of a group, each by the control of its own programs.
//
//   LeadingControl control(group, std::move(own));         // rank 0, for its ModelRunner
//   FollowSteps(&native, *group, bounds, adapters, &own);  // any other rank
//
// A call is a message between steps (MessageKind::kControl): rank 0 sends it, every rank makes the
// call on its own control, and all exchange how it went, so that each knows the outcome of all. The
// call succeeds if it does so on every rank; otherwise ranks on which it did return to what they
// were. If one cannot, the group ends. An update is decided before any rank takes its new weights:
// the commit of a rank is where it meets the others, and rank 0's caller commits in between.
//
// In the sources of an update, a name without a rank is a program of rank 0, and "<rank>/<name>"
// one of that rank. A rank gets its own part only.
//
// Failures are those of the lowest rank that has one; messages of ranks other than 0 name it, and
// have at most 508 bytes behind that.
//
// Ownership: the group is the caller's. Thread safety: that of RunnerControl.
#ifndef PAGEMILL_CC_RUNNER_RANKS_RANK_CONTROL_H_
#define PAGEMILL_CC_RUNNER_RANKS_RANK_CONTROL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/engine/runner_control.h"

namespace pagemill::runner {

// What every rank does in a call; all ranks make the same calls.
class ControlledRank {
 public:
  // Both outlive it.
  ControlledRank(comm::Group* group, engine::RunnerControl* own) : group_(group), own_(own) {}

  Status Sleep(engine::KvMemory kv);
  Status Wake();
  // `sources` are this rank's, by names without a rank. `commit` may fail on any rank: then no rank
  // takes its weights.
  Status UpdateWeights(const engine::WeightSources& sources, engine::NewWeights where,
                       const std::function<Status()>& commit);

 private:
  Status Agree(const Status& own);
  Status Settle(const Status& own, const std::function<Status()>& undo);

  comm::Group* const group_;
  engine::RunnerControl* const own_;
  std::optional<engine::KvMemory> asleep_;  // and what became of the KV
};

// The control of rank 0.
class LeadingControl final : public engine::RunnerControl {
 public:
  // `own` is that of rank 0's programs.
  LeadingControl(comm::Group* group, std::unique_ptr<engine::RunnerControl> own)
      : group_(group), own_(std::move(own)), rank_(group, own_.get()) {}

  Status Sleep(engine::KvMemory kv) override;
  Status Wake() override;
  // kInvalidArgument also for a name of a rank that does not exist. kResourceExhausted: the sources
  // of a rank have more than 1 GiB.
  Status UpdateWeights(const engine::WeightSources& sources, engine::NewWeights where,
                       const std::function<Status()>& commit) override;

 private:
  comm::Group* const group_;
  const std::unique_ptr<engine::RunnerControl> own_;
  ControlledRank rank_;
};

// Another rank's part in the call of a message of kControl, with all steps before it collected.
// Not OK if the group has ended.
Status FollowControl(std::span<const int32_t> message, comm::Group& group, ControlledRank* rank);

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_RANKS_RANK_CONTROL_H_
