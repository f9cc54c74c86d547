// File: cc/sim/routing/least_loaded.h
// Selects the engine with the fewest unfinished requests; equals take turns. O(engines).
#ifndef PAGEMILL_CC_SIM_ROUTING_LEAST_LOADED_H_
#define PAGEMILL_CC_SIM_ROUTING_LEAST_LOADED_H_

#include <cstddef>

#include "cc/sim/routing/routing_policy.h"

namespace pagemill::sim {

class LeastLoaded final : public RoutingPolicy {
 public:
  int32_t Route(std::span<const int32_t> prompt, std::span<const int32_t> loads) override;

 private:
  size_t next_ = 0;  // where the search starts, so that equals take turns
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ROUTING_LEAST_LOADED_H_
