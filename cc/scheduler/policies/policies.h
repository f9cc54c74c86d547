// File: cc/scheduler/policies/policies.h
// The table of scheduling policies: name -> implementation.
#ifndef PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_
#define PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/scheduler/policies/policy.h"

namespace pagemill::scheduler {

// kInvalidArgument lists the known policies.
StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_POLICIES_POLICIES_H_
