// File: cc/router/routing_policy.h
// Which of several engines gets a request. The table of policies is in routing_policy.cc;
// router.h has the state that they decide from.
//
//   round_robin    each engine in turn
//   least_loaded   the engine with the fewest unfinished requests; among equals the next in turn
//   prefix_aware   the engine that has the longest prefix of the prompt in its cache, unless it is
//                  too busy for a prefix of this length: then as least_loaded; the idea is that of
//                  SGLang's cache-aware router (the README of its sgl-router)
//   session        always the same engine for the same session; without one, the least loaded
#ifndef PAGEMILL_CC_ROUTER_ROUTING_POLICY_H_
#define PAGEMILL_CC_ROUTER_ROUTING_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cc/base/status.h"

namespace pagemill::router {

struct EngineLoad {
  bool available = true;     // false: gets no requests
  int32_t num_requests = 0;  // unfinished
};

// What a policy decides from.
struct RoutingQuery {
  std::span<const EngineLoad> engines;  // at least one, always as many
  std::string_view session = {};        // empty: none
  // Engines that have the longest known prefix of the prompt, of those that are available; empty if
  // no engine has any of it, or the policy does not use prefixes.
  std::span<const int32_t> prefix_holders = {};
  int32_t prefix_tokens = 0;  // of that prefix
};

// Obligations of an implementer:
// 1. Route() returns the index of an available engine; empty if there is none.
// 2. The choice depends on the calls so far and on nothing else. O(engines).
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual std::optional<int32_t> Route(const RoutingQuery& query) = 0;

  // Prefixes are looked up only for policies that use them.
  bool uses_prefixes() const { return uses_prefixes_; }

 protected:
  explicit RoutingPolicy(bool uses_prefixes = false) : uses_prefixes_(uses_prefixes) {}

 private:
  const bool uses_prefixes_;
};

// An engine is too busy for a prefix if it has more than 1.5 times as many requests as the least
// loaded engine, and more than one for each kTokensPerRequest tokens of the prefix, of which
// kBusyRequests count at most. So all conversations may begin with one system prompt without
// gathering on the engine that had it first. Both numbers are guesses.
inline constexpr int32_t kBusyRequests = 8;
inline constexpr int32_t kTokensPerRequest = 256;

// kInvalidArgument lists the known policies.
StatusOr<std::unique_ptr<RoutingPolicy>> MakeRoutingPolicy(std::string_view name);

}  // namespace pagemill::router

#endif  // PAGEMILL_CC_ROUTER_ROUTING_POLICY_H_
