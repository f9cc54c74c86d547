#include "cc/base/clock.h"

#include <chrono>

namespace pagemill {

int64_t SteadyClock::NowNanos() const {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace pagemill
