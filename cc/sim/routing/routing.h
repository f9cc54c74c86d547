// File: cc/sim/routing/routing.h
// The table of routing policies: name -> implementation.
#ifndef PAGEMILL_CC_SIM_ROUTING_ROUTING_H_
#define PAGEMILL_CC_SIM_ROUTING_ROUTING_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/sim/routing/routing_policy.h"

namespace pagemill::sim {

// kInvalidArgument lists the known policies. `num_engines` > 0.
StatusOr<std::unique_ptr<RoutingPolicy>> MakeRoutingPolicy(std::string_view name,
                                                           int32_t num_engines);

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ROUTING_ROUTING_H_
