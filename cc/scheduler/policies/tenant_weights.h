// File: cc/scheduler/policies/tenant_weights.h
// What the fair policy gives to whom.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_TENANT_WEIGHTS_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_TENANT_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <string>

namespace pagemill::scheduler {

// Tenant -> weight, from 1 to kMaxTenantWeight. Who is not in it has weight 1.
using TenantWeights = std::map<std::string, int32_t>;
inline constexpr int32_t kMaxTenantWeight = 1000;

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_TENANT_WEIGHTS_H_
