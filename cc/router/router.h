// File: cc/router/router.h
// Sends requests to one of several engines: by load, in turn, by session, or to the engine whose
// cache has the longest prefix of the prompt. The simulator and a front end of servers share it.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
//                             Router::Create({.policy = "prefix_aware", .num_engines = 2}));
//   std::optional<int32_t> engine = router->Route(request);   // empty: no engine is available
//   ...                                                       // the engine serves the request
//   router->Finish(*engine);
//   for (const kv_cache::KvEvent& event : events_of_engine) router->Observe(*engine, event);
//
// What engines have in their caches is known from their KV events. Blocks of a prompt count as
// those of the engine that it was sent to from then on: their events come later, and without any
// events the router goes by what it has sent.
//
// Thread safety: none. The same calls give the same choices.
#ifndef PAGEMILL_CC_ROUTER_ROUTER_H_
#define PAGEMILL_CC_ROUTER_ROUTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/kv_cache/event_log.h"
#include "cc/router/prefix_index.h"
#include "cc/router/routing_policy.h"
#include "cc/step/request.h"

namespace pagemill::router {

struct RouterOptions {
  std::string policy = "least_loaded";  // a name of routing_policy.h
  int32_t num_engines = 1;
  // Those of the engines' caches: other blocks and hashes would never be found.
  int32_t block_size = 16;  // tokens
  kv_cache::HashAlgorithm hash_algorithm = kv_cache::HashAlgorithm::kXxh3_128;
  // Blocks whose engine is remembered, all engines together; 8 bytes each.
  int64_t max_prefix_blocks = 1 << 20;

  Status Validate() const;
};

struct RouterStats {
  int64_t num_routed = 0;
  // Requests that went to an engine with a known prefix of the prompt, and the tokens of these
  // prefixes. Of policies that use prefixes.
  int64_t num_prefix_hits = 0;
  int64_t prefix_tokens = 0;
};

class Router {
 public:
  // kInvalidArgument if the options make no sense.
  static StatusOr<std::unique_ptr<Router>> Create(const RouterOptions& options);

  // Chooses an engine and counts the request as its own until Finish(). Empty if none is available.
  // O(tokens of the prompt + engines).
  std::optional<int32_t> Route(const step::Request& request, std::string_view session = {});
  // A request that was sent to `engine` has ended, or was refused there.
  void Finish(int32_t engine) { AddRequests(engine, -1); }
  // Requests of `engine` that Route() does not know: it was chosen for them, or others sent them.
  // Negative: so many have ended.
  void AddRequests(int32_t engine, int32_t count);

  // What an engine's cache stored or removed. Events of other groups of layers than the first, of
  // other media than the pool, and of blocks of another size are ignored.
  void Observe(int32_t engine, const kv_cache::KvEvent& event);
  // The engine's cache is empty, or not known any longer: it was restarted, or events were lost.
  void Forget(int32_t engine);
  // An engine that is not available gets no requests.
  void SetAvailable(int32_t engine, bool available);

  const EngineLoad& load(int32_t engine) const { return engines_[engine]; }
  const RouterStats& stats() const { return stats_; }
  bool uses_prefixes() const { return policy_->uses_prefixes(); }

 private:
  Router(const RouterOptions& options, std::unique_ptr<RoutingPolicy> policy);

  void HashPrompt(const step::Request& request);  // into chain_
  int32_t FindHolders();  // of the longest part of chain_; its number of tokens

  const int32_t block_size_;
  const std::unique_ptr<RoutingPolicy> policy_;
  std::vector<EngineLoad> engines_;
  RouterStats stats_;
  PrefixIndex index_;
  kv_cache::BlockHasher hasher_;
  std::vector<kv_cache::BlockHash> chain_;  // of the prompt that is being routed
  std::vector<int32_t> holders_;
};

}  // namespace pagemill::router

#endif  // PAGEMILL_CC_ROUTER_ROUTER_H_
