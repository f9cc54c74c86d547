#include "cc/sim/routing/least_loaded.h"

#include <algorithm>

namespace pagemill::sim {

int32_t LeastLoaded::Route(std::span<const int32_t>, std::span<const int32_t> loads) {
  const auto start = loads.begin() + static_cast<ptrdiff_t>(next_ % loads.size());
  const auto after = std::min_element(start, loads.end());
  const auto before = std::min_element(loads.begin(), start);
  const auto chosen = before != start && *before < *after ? before : after;
  next_ = static_cast<size_t>(chosen - loads.begin()) + 1;
  return static_cast<int32_t>(chosen - loads.begin());
}

}  // namespace pagemill::sim
