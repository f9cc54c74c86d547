#include "cc/runner/adapters/running_adapters.h"

#include <cstdlib>
#include <optional>
#include <utility>

namespace pagemill::runner {

RunningAdapters::RunningAdapters(AdapterCalls calls, AdapterStore* store,
                                 const engine::RunnerLimits& limits)
    : calls_(std::move(calls)),
      store_(store),
      requests_(static_cast<size_t>(limits.max_num_seqs)),
      slots_(static_cast<size_t>(limits.max_adapters)) {
  array_.reserve(static_cast<size_t>(limits.max_num_tokens));
}

void RunningAdapters::Apply(const step::StepPlan& plan) {
  for (step::RequestIndex index : plan.released) Release(index);
  // Behind all that was set from the store: until it receives this, a rank has the weights.
  for (step::AdapterId adapter : store_->TakeRemoved()) {
    if (calls_.forget) (void)calls_.forget(adapter);  // fails if the group has ended
  }
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.start != nullptr) Start(entry.index, entry.start->adapter);
  }
}

void RunningAdapters::AddTo(const step::StepPlan& plan, ops::StepBatch* batch) {
  array_.clear();
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    array_.insert(array_.end(), static_cast<size_t>(entry.num_tokens()), of(entry.index).slot);
  }
  batch->adapter_slots = array_.data();
}

void RunningAdapters::Release(step::RequestIndex index) {
  Holder& request = requests_[static_cast<size_t>(index.value())];
  const Holder before = std::exchange(request, {});
  if (before.slot == kNone) return;
  Slot& slot = slots_[static_cast<size_t>(before.slot)];
  if (--slot.num_requests > 0) return;
  slot = {};
  (void)calls_.set(before.slot, step::kNoAdapter, {});  // a slot that exists
}

void RunningAdapters::Start(step::RequestIndex index, step::AdapterId adapter) {
  Release(index);
  if (adapter == step::kNoAdapter) return;
  StatusOr<int32_t> slot = Take(adapter);
  Holder& request = requests_[static_cast<size_t>(index.value())];
  if (slot.ok()) {
    request.slot = *slot;
  } else {
    request.status = slot.status();
  }
}

StatusOr<int32_t> RunningAdapters::Take(step::AdapterId adapter) {
  int32_t free = kNone;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].num_requests == 0) {
      if (free == kNone) free = static_cast<int32_t>(i);
    } else if (slots_[i].adapter == adapter) {
      ++slots_[i].num_requests;
      return static_cast<int32_t>(i);
    }
  }
  if (free == kNone) return Internal("more adapters run than max_adapters");
  const std::optional<AdapterParts> parts = store_->Find(adapter);
  if (!parts) {
    return Unavailable(
        "the adapter of this request left memory before the request began; send it again");
  }
  PAGEMILL_RETURN_IF_ERROR(calls_.set(free, adapter, *parts));
  slots_[static_cast<size_t>(free)] = {.adapter = adapter, .num_requests = 1};
  return free;
}

void RunningAdapters::CheckIntegrity() const {
  std::vector<int32_t> counts(slots_.size());
  for (const Holder& request : requests_) {
    if (request.slot != kNone) ++counts[static_cast<size_t>(request.slot)];
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const bool used = slots_[i].adapter != step::kNoAdapter;
    if (counts[i] != slots_[i].num_requests || used != (counts[i] > 0)) std::abort();
  }
}

}  // namespace pagemill::runner
