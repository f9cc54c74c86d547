// File: cc/device/ranks.h
// What ranks tell each other before their devices exchange data (cc/device/stream.h).
#ifndef PAGEMILL_CC_DEVICE_RANKS_H_
#define PAGEMILL_CC_DEVICE_RANKS_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/stream.h"

namespace pagemill::device {

// What each rank has told, in rank order. A call of all ranks.
template <typename T>
StatusOr<std::vector<T>> TellRanks(const Ranks& ranks, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(ranks.num_ranks));
  PAGEMILL_RETURN_IF_ERROR(
      ranks.exchange(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all))));
  return all;
}

// True if `own` is true on all ranks. A call of all ranks.
inline StatusOr<bool> OnAllRanks(const Ranks& ranks, bool own) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<char> all, TellRanks<char>(ranks, own ? 1 : 0));
  return std::ranges::find(all, 0) == all.end();
}

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_RANKS_H_
