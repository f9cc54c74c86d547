// File: cc/runner/adapters/adapter_store.h
// The adapters that are in memory, by id. Requests name an id (step::Request::adapter); the runner
// finds its weights here when a request with it begins.
//
//   AdapterStore store;
//   PAGEMILL_RETURN_IF_ERROR(store.Add(engine->NewAdapterId(), weights));
//   store.Remove(id);   // requests that run keep the weights; those that begin later fail
//
// Thread safety: all members may be called from any thread.
#ifndef PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_
#define PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/step/request.h"

namespace pagemill::runner {

class AdapterStore {
 public:
  // kInvalidArgument for an id that was added before, or that means the model as it is.
  Status Add(step::AdapterId id, std::shared_ptr<const program::AdapterWeights> weights);
  void Remove(step::AdapterId id);
  std::shared_ptr<const program::AdapterWeights> Find(step::AdapterId id) const;  // null: none
  // The adapters that were removed since the last call.
  std::vector<step::AdapterId> TakeRemoved();

 private:
  mutable std::mutex mutex_;
  std::map<step::AdapterId, std::shared_ptr<const program::AdapterWeights>> weights_;
  std::vector<step::AdapterId> removed_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_
