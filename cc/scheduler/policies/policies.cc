#include "cc/scheduler/policies/policies.h"

#include <string>

#include "cc/scheduler/policies/fcfs.h"

namespace pagemill::scheduler {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

template <typename P>
std::unique_ptr<Policy> Make() {
  return std::make_unique<P>();
}

constexpr Row kPolicies[] = {
    {"fcfs", Make<Fcfs>},
};

}  // namespace

StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  std::string known;
  for (const Row& row : kPolicies) {
    if (row.name == name) return row.make();
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("scheduling policy \"" + std::string(name) + "\" is not one of " + known);
}

}  // namespace pagemill::scheduler
