// File: cc/scheduler/testing/hybrid_model.h
// A FakeModel whose layers may fall into several groups with different needs of the KV cache. The
// tokens are the FakeModel's, whose KV is that of group 0; beside it, each group has pages of its
// own that only plans and loads write. Each step reads what the layers of the group would read,
// through the block tables of the plans, and finds there what the request itself must have
// computed: a window freed too early, a state that belongs to another prefix or a page in two
// places is an error.
//
//   HybridModel model(scheduler_options);
//   PAGEMILL_ASSIGN_OR_RETURN(step::StepResult result, model.Run(plan));
//
// Group 0 is of kind "full" and has the cache's block size. Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_HYBRID_MODEL_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_HYBRID_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/scheduler/scheduler_options.h"
#include "cc/step/fake_model.h"
#include "cc/step/page_store.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::scheduler {

class HybridModel final : public step::PageStore {
 public:
  explicit HybridModel(const SchedulerOptions& options);

  // kInternal, with a sentence, where the plan is wrong; the model is then unusable.
  StatusOr<step::StepResult> Run(const step::StepPlan& plan);
  // As FakeModel::Skip().
  void Skip(const step::StepPlan& plan);

  size_t page_bytes(step::GroupId group) const override;
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override;
  Status Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override;

 private:
  struct Slot {
    std::shared_ptr<const step::Request> request;
    std::vector<int32_t> context;  // known tokens
    std::vector<uint64_t> prints;  // prints[n]: of all that determines the first n tokens
    std::vector<std::vector<step::BlockId>> tables;  // per group
  };
  struct Page {
    size_t group = 0;
    std::vector<uint64_t> prints;  // of the tokens of the block; a state has one
  };
  struct Tokens {  // of a step
    int32_t begin, end;
  };

  void Start(const step::ScheduledRequest& entry, Slot* slot) const;
  Status RunEntry(const step::ScheduledRequest& entry, Slot* slot);
  Status RunTokens(const Slot& slot, size_t group, Tokens step);
  Status RunState(const Slot& slot, size_t group, Tokens step);
  bool IsState(size_t group) const { return groups_[group].kind == "state_space"; }
  // The first token that the group's layers read for the token at `position`.
  int32_t FirstToken(size_t group, int32_t position) const;
  // The page of a table's entry, as the group's: what another one left there is gone. Null if the
  // entry has none.
  Page* PageAt(const Slot& slot, size_t group, int32_t entry);
  // That of the state after `tokens` tokens, at which a step begins or ends; and of a boundary.
  Page* StateAfter(const Slot& slot, size_t group, int32_t tokens);
  Page* StateAtBoundary(const Slot& slot, size_t group, int32_t tokens);

  step::FakeModel model_;
  std::vector<step::KvGroupOptions> groups_;  // with their block sizes
  std::vector<Slot> slots_;
  std::vector<Page> pages_;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_HYBRID_MODEL_H_
