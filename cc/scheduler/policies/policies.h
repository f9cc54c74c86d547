// File: cc/scheduler/policies/policies.h
// The table of scheduling policies: name -> implementation.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/scheduler/policies/policy.h"
#include "cc/scheduler/policies/tenant_weights.h"

namespace pagemill::scheduler {

// kInvalidArgument lists the known policies, or names the weight that is out of range or of no use
// to the policy.
StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name,
                                             const TenantWeights& tenant_weights = {});

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_
