// File: cc/sim/routing/round_robin.h
// Selects each engine in turn, regardless of load.
#ifndef PAGEMILL_CC_SIM_ROUTING_ROUND_ROBIN_H_
#define PAGEMILL_CC_SIM_ROUTING_ROUND_ROBIN_H_

#include <cstddef>

#include "cc/sim/routing/routing_policy.h"

namespace pagemill::sim {

class RoundRobin final : public RoutingPolicy {
 public:
  int32_t Route(std::span<const int32_t> prompt, std::span<const int32_t> loads) override;

 private:
  size_t next_ = 0;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ROUTING_ROUND_ROBIN_H_
