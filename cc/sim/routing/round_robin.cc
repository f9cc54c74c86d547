#include "cc/sim/routing/round_robin.h"

namespace pagemill::sim {

int32_t RoundRobin::Route(std::span<const int32_t>, std::span<const int32_t> loads) {
  const size_t chosen = next_ % loads.size();
  next_ = chosen + 1;
  return static_cast<int32_t>(chosen);
}

}  // namespace pagemill::sim
