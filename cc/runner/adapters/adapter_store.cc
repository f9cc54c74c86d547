#include "cc/runner/adapters/adapter_store.h"

#include <utility>

namespace pagemill::runner {

Status AdapterStore::Add(step::AdapterId id, AdapterParts parts) {
  if (id == step::kNoAdapter) return InvalidArgument("adapter 0 is the model as it is");
  const std::lock_guard lock(mutex_);
  if (adapters_.try_emplace(id, std::move(parts)).second) return OkStatus();
  return InvalidArgument("an adapter has this id already: each load takes a new one");
}

void AdapterStore::Remove(step::AdapterId id) {
  AdapterParts freed;  // outside of the lock
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return;
  freed = std::move(found->second);
  adapters_.erase(found);
  removed_.push_back(id);
}

std::vector<step::AdapterId> AdapterStore::TakeRemoved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

std::optional<AdapterParts> AdapterStore::Find(step::AdapterId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return std::nullopt;
  return found->second;
}

}  // namespace pagemill::runner
