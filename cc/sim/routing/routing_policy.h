// File: cc/sim/routing/routing_policy.h
// Selects the engine for a request. One implementation per file; routing.cc has the table.
#ifndef PAGEMILL_CC_SIM_ROUTING_ROUTING_POLICY_H_
#define PAGEMILL_CC_SIM_ROUTING_ROUTING_POLICY_H_

#include <cstdint>
#include <span>

namespace pagemill::sim {

// Obligations of an implementer:
// 1. Route() returns an index into `loads`, which has the number of unfinished requests of each
//    engine and always the same size, at least 1.
// 2. The choice depends on the calls so far and on nothing else.
// 3. Memory is bounded.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual int32_t Route(std::span<const int32_t> prompt, std::span<const int32_t> loads) = 0;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ROUTING_ROUTING_POLICY_H_
