// File: cc/runner/adapters/running_adapters.h
// Which slot of the executor's adapter tables (program/adapters/adapter_tables.h) each request in a
// step uses: an adapter has a slot as long as a request that runs has the adapter. The scheduler
// sees to it that these are at most RunnerLimits::max_adapters.
//
//   RunningAdapters running({.set = set}, &store, limits);
//   running.Apply(plan);                     // before the step
//   running.AddTo(plan, &batch);             // its array
//   if (!running.status(index).ok()) ...     // that request fails
//
// Thread safety: used by the engine thread only.
#ifndef PAGEMILL_CC_RUNNER_ADAPTERS_RUNNING_ADAPTERS_H_
#define PAGEMILL_CC_RUNNER_ADAPTERS_RUNNING_ADAPTERS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner.h"  // RunnerLimits
#include "cc/ops/batch_view.h"
#include "cc/runner/adapters/adapter_store.h"
#include "cc/step/step_plan.h"

namespace pagemill::runner {

// What the executors of all ranks do with adapters, between steps.
struct AdapterCalls {
  // Gives a slot to an adapter, of which rank 0 has these parts; kNoAdapter and no parts empty it.
  std::function<Status(int32_t slot, step::AdapterId adapter, const AdapterParts& parts)> set;
  // Removes an adapter from the stores of the other ranks; null if there are none.
  std::function<Status(step::AdapterId adapter)> forget = nullptr;
};

class RunningAdapters {
 public:
  // `store` outlives this object.
  RunningAdapters(AdapterCalls calls, AdapterStore* store, const engine::RunnerLimits& limits);

  // Takes slots for the requests that begin, and frees those of adapters that none has any more. A
  // request whose adapter is not in the store runs without and gets a status.
  void Apply(const step::StepPlan& plan);

  // Sets the array of slots of the step's tokens, valid until the next call.
  void AddTo(const step::StepPlan& plan, ops::StepBatch* batch);

  // The slot of a request in the plan that was applied last, -1: it has no adapter.
  int32_t slot(step::RequestIndex index) const { return of(index).slot; }
  // Not OK for a request whose adapter left memory before it began.
  const Status& status(step::RequestIndex index) const { return of(index).status; }

  // Aborts if the slots are inconsistent.
  void CheckIntegrity() const;

 private:
  static constexpr int32_t kNone = -1;
  struct Holder {
    int32_t slot = kNone;
    Status status;
  };
  struct Slot {
    step::AdapterId adapter = step::kNoAdapter;
    int32_t num_requests = 0;
  };

  const Holder& of(step::RequestIndex index) const {
    return requests_[static_cast<size_t>(index.value())];
  }
  void Release(step::RequestIndex index);
  void Start(step::RequestIndex index, step::AdapterId adapter);
  StatusOr<int32_t> Take(step::AdapterId adapter);

  const AdapterCalls calls_;
  AdapterStore* const store_;
  std::vector<Holder> requests_;
  std::vector<Slot> slots_;
  std::vector<int32_t> array_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_ADAPTERS_RUNNING_ADAPTERS_H_
