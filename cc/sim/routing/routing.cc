#include "cc/sim/routing/routing.h"

#include <string>

#include "cc/sim/routing/least_loaded.h"
#include "cc/sim/routing/prefix_aware.h"
#include "cc/sim/routing/round_robin.h"

namespace pagemill::sim {
namespace {

using Policy = std::unique_ptr<RoutingPolicy>;

struct Row {
  std::string_view name;
  Policy (*make)(int32_t num_engines);
};

constexpr Row kPolicies[] = {
    {"least_loaded", [](int32_t) -> Policy { return std::make_unique<LeastLoaded>(); }},
    {"prefix_aware", [](int32_t n) -> Policy { return std::make_unique<PrefixAware>(n); }},
    {"round_robin", [](int32_t) -> Policy { return std::make_unique<RoundRobin>(); }},
};

}  // namespace

StatusOr<Policy> MakeRoutingPolicy(std::string_view name, int32_t num_engines) {
  std::string known;
  for (const Row& row : kPolicies) {
    if (row.name == name) return row.make(num_engines);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("routing is \"" + std::string(name) + "\", it must be one of " + known);
}

}  // namespace pagemill::sim
