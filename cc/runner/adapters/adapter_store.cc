#include "cc/runner/adapters/adapter_store.h"

#include <utility>

namespace pagemill::runner {

Status AdapterStore::Add(step::AdapterId id,
                         std::shared_ptr<const program::AdapterWeights> weights) {
  if (id == step::kNoAdapter) return InvalidArgument("adapter 0 is the model as it is");
  const std::lock_guard lock(mutex_);
  if (weights_.try_emplace(id, std::move(weights)).second) return OkStatus();
  return InvalidArgument("an adapter has this id already: each load takes a new one");
}

void AdapterStore::Remove(step::AdapterId id) {
  std::shared_ptr<const program::AdapterWeights> freed;  // outside of the lock
  const std::lock_guard lock(mutex_);
  const auto found = weights_.find(id);
  if (found == weights_.end()) return;
  freed = std::move(found->second);
  weights_.erase(found);
  removed_.push_back(id);
}

std::vector<step::AdapterId> AdapterStore::TakeRemoved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

std::shared_ptr<const program::AdapterWeights> AdapterStore::Find(step::AdapterId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = weights_.find(id);
  return found == weights_.end() ? nullptr : found->second;
}

}  // namespace pagemill::runner
