// File: cc/runner/adapters/adapter_store.h
// The adapters that are in memory, by id. Requests name an id (step::Request::adapter); the runner
// finds its weights here when a request with it begins.
//
//   AdapterStore store;
//   PAGEMILL_RETURN_IF_ERROR(store.Add(engine->NewAdapterId(), {of_model, of_encoder}));
//   store.Remove(id);   // requests that run keep the weights; those that begin later fail
//
// Thread safety: all members may be called from any thread.
#ifndef PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_
#define PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/step/request.h"

namespace pagemill::runner {

// The weights of one adapter for each program of a runner: the model's, then those of its encoders.
// Null, or missing at the end: it leaves that program as it is.
using AdapterParts = std::vector<std::shared_ptr<const program::AdapterWeights>>;

class AdapterStore {
 public:
  // kInvalidArgument for an id that was added before, or that means the model as it is.
  Status Add(step::AdapterId id, AdapterParts parts);
  void Remove(step::AdapterId id);
  std::optional<AdapterParts> Find(step::AdapterId id) const;
  // The adapters that were removed since the last call.
  std::vector<step::AdapterId> TakeRemoved();

 private:
  mutable std::mutex mutex_;
  std::map<step::AdapterId, AdapterParts> adapters_;
  std::vector<step::AdapterId> removed_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_ADAPTERS_ADAPTER_STORE_H_
