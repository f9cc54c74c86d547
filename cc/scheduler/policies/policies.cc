#include "cc/scheduler/policies/policies.h"

#include <string>

#include "cc/scheduler/policies/fair.h"
#include "cc/scheduler/policies/fcfs.h"
#include "cc/scheduler/policies/priority.h"

namespace pagemill::scheduler {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const TenantWeights& weights);
};

template <typename P>
std::unique_ptr<Policy> Make(const TenantWeights& /*weights*/) {
  return std::make_unique<P>();
}

std::unique_ptr<Policy> MakeFair(const TenantWeights& weights) {
  return std::make_unique<Fair>(weights);
}

constexpr Row kPolicies[] = {
    {"fair", MakeFair},
    {"fcfs", Make<Fcfs>},
    {"priority", Make<Priority>},
};

Status CheckWeights(std::string_view policy, const TenantWeights& weights) {
  if (weights.empty()) return OkStatus();
  if (policy != "fair") {
    return InvalidArgument("tenant_weights are given, but scheduling policy \"" +
                           std::string(policy) +
                           "\" ignores them: leave them out, or choose --scheduling-policy fair");
  }
  for (const auto& [tenant, weight] : weights) {
    if (weight >= 1 && weight <= kMaxTenantWeight) continue;
    return InvalidArgument("the weight of tenant \"" + tenant + "\" is " + std::to_string(weight) +
                           ", it must be from 1 to " + std::to_string(kMaxTenantWeight) +
                           " (--tenant-weights)");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name,
                                             const TenantWeights& tenant_weights) {
  std::string known;
  for (const Row& row : kPolicies) {
    if (row.name == name) {
      PAGEMILL_RETURN_IF_ERROR(CheckWeights(name, tenant_weights));
      return row.make(tenant_weights);
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("scheduling policy \"" + std::string(name) + "\" is not one of " + known);
}

}  // namespace pagemill::scheduler
