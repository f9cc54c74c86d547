// File: cc/engine/kv_tier_options.h
// Where KV goes that the pool has no room for, and where it comes back from; docs/kv_tiers.md. Off
// by default. Needs a runner whose pages can be copied (Runner::pages()) and prefix caching.
//
//   options.kv_tiers.host_bytes = int64_t{4} << 30;
#ifndef PAGEMILL_CC_ENGINE_KV_TIER_OPTIONS_H_
#define PAGEMILL_CC_ENGINE_KV_TIER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/connector.h"
#include "cc/kv_cache/transfer.h"

namespace pagemill::engine {

struct KvTierOptions {
  // Host memory for blocks; 0 = no host tier.
  int64_t host_bytes = 0;
  // A file that must not exist, for blocks evicted from host memory or, without a host tier, from
  // the pool. Its content dies with the engine. Empty, and 0 bytes = no disk tier.
  std::string disk_path = {};
  int64_t disk_bytes = 0;
  // Which block of a tier is evicted first: "lru" or "arc".
  std::string policy = "lru";

  // A folder of block files that outlives the engine and that engines may share, instead of tiers;
  // empty = none. Full at `connector_bytes`.
  std::string connector_folder = {};
  int64_t connector_bytes = int64_t{16} << 30;

  // Shared memory by which the KV of finished requests goes to other engines of this machine, and
  // theirs comes here, instead of all these: a bound, taken as it is used. 0 = none.
  int64_t shared_memory_bytes = 0;
  // With it, by TCP, engines on other machines. Where they fetch KV of this one, "10.0.0.7:7000";
  // empty = nowhere, port 0 = any that is free. From which addresses this one fetches; empty =
  // none, whatever requests say. What all of them know: at least 16 bytes.
  std::string transfer_listen = {};
  std::vector<std::string> transfer_peers = {};
  std::string transfer_secret = {};

  // A connector and its worker of the host's own, instead of all these. Both outlive the engine,
  // and are used by its thread only.
  kv_cache::KvConnector* connector = nullptr;
  kv_cache::TransferWorker* worker = nullptr;

  // A transfer that takes longer is abandoned: the request that waits for it computes instead.
  // While several such transfers are under way (Scheduler::AbandonTransfer()), the connector is not
  // used.
  int64_t transfer_timeout_ms = 10'000;

  // CPUs that the runner's threads keep busy: threads that copy stay off as many, if there are
  // more. 0 = all, or not known.
  int32_t num_step_threads = 0;

  // What the bytes of KV depend on besides tokens: model, weights, format. Content of others is not
  // loaded. Needed for what other engines read, the folder, shared memory and saved sessions;
  // called only when one of them is used, since it may read all weights. From any thread. Not OK:
  // another rank did not say what its weights are.
  std::function<StatusOr<std::string>()> fingerprint = nullptr;

  bool enabled() const {
    return host_bytes > 0 || !disk_path.empty() || !connector_folder.empty() ||
           shared_memory_bytes > 0 || connector != nullptr;
  }
  // The flag of what has the engine's KV named by its weights for other engines, so that these
  // cannot change; "" if there is nothing.
  const char* names_weights() const {
    if (shared_memory_bytes > 0) return "--kv-shared-memory-bytes";
    return connector_folder.empty() ? "" : "--kv-connector-path";
  }
  // kInvalidArgument names the field, its value, its range and its flag.
  Status Validate() const;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_KV_TIER_OPTIONS_H_
